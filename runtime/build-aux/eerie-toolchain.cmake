# A CMake toolchain file that only quiets eerie-sys 0.5.0: it lists a directory of its own CMake build tree in
# rerun-if-changed, and every configure touches that tree, so each `cargo build` would run CMake again and rebuild eerie
# (15 s and more). No install rules, and the touched directories are dated back once the build is done.
set(CMAKE_SKIP_INSTALL_RULES ON CACHE BOOL "" FORCE)

set(_ninja "${CMAKE_CURRENT_LIST_DIR}/../../.toolchain/bin/ninja")
if(EXISTS "${_ninja}")
  set(CMAKE_MAKE_PROGRAM "${_ninja}" CACHE FILEPATH "" FORCE)
endif()

get_property(_try GLOBAL PROPERTY IN_TRY_COMPILE)
if(NOT _try AND NOT DEFINED EERIE_SETTLE)
  set(EERIE_SETTLE 1)
  # EVAL CODE, because a deferred call would read CMAKE_CURRENT_LIST_DIR when it runs, in the project.
  cmake_language(EVAL CODE "cmake_language(DEFER DIRECTORY [[${CMAKE_SOURCE_DIR}]] CALL include [[${CMAKE_CURRENT_LIST_DIR}/eerie-settle.cmake]])")
endif()
