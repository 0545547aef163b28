# Included at the end of eerie-sys's own CMakeLists.txt: see eerie-toolchain.cmake.
if(TARGET eerie_runtime)
  set(_tree "${CMAKE_BINARY_DIR}/iree/runtime/src")
  set(_settle find "${_tree}" -newermt 2001-01-02 -exec touch -h -d 2001-01-01 {} +)
  add_custom_command(TARGET eerie_runtime POST_BUILD COMMAND ${_settle} VERBATIM)
  add_custom_target(eerie_settle COMMAND find "${_tree}" -type d -exec touch -d 2001-01-01 {} + VERBATIM)
  add_dependencies(eerie_runtime eerie_settle)
endif()
