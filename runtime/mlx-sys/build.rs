//! Drop-in replacement for the build script of upstream `mlx-sys`.
//!
//! * Apple targets: runs the *unmodified* upstream build (CMake + FetchContent) through
//!   `upstream/Cargo.toml` and relays its link directives and bindings.
//! * Elsewhere: compiles the mlx-c sources of that same pinned upstream crate against the
//!   headers of a prebuilt `libmlx.so` (PyPI `mlx-cpu` / `mlx-cuda-*` wheel) and links them
//!   into `libmlxc.so`, whose SONAME is its absolute path, so that no dependent needs an rpath.
//!
//! Environment: MLX_DIR (folder holding include/ and lib/), MLX_C_DIR (mlx-c sources),
//! MLX_BLAS ("auto" | "reference" | path of an OpenBLAS .so), LIBCLANG_PATH.

use serde_json::Value;
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

type Res<T> = Result<T, String>;

fn main() {
    for var in ["MLX_DIR", "MLX_C_DIR", "MLX_BLAS", "LIBCLANG_PATH", "VIRTUAL_ENV", "PATH"] {
        println!("cargo:rerun-if-env-changed={var}");
    }
    for path in ["build.rs", "compat", "upstream/Cargo.toml", "upstream/Cargo.lock"] {
        println!("cargo:rerun-if-changed={path}");
    }
    let apple = env::var("CARGO_CFG_TARGET_VENDOR").as_deref() == Ok("apple")
        || env::var_os("MLX_SYS_TEST_DELEGATE").is_some();
    if let Err(e) = if apple { delegate() } else { prebuilt() } {
        eprintln!("\nmlx-sys: {e}\n");
        std::process::exit(1);
    }
}

fn out_dir() -> PathBuf {
    env::var_os("OUT_DIR").unwrap().into()
}

fn manifest_dir() -> PathBuf {
    env::var_os("CARGO_MANIFEST_DIR").unwrap().into()
}

/// `cargo` on the helper manifest, free of the variables that the outer cargo set for us.
fn cargo(sub: &str) -> Command {
    let mut c = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (k, _) in env::vars_os() {
        let k = k.to_string_lossy();
        if k.starts_with("CARGO_FEATURE_") || k.starts_with("CARGO_CFG_") || k.starts_with("CARGO_PKG_")
            || k.starts_with("CARGO_MANIFEST") || k == "OUT_DIR" || k == "TARGET" || k == "HOST"
            || k == "CARGO_ENCODED_RUSTFLAGS" || k == "CARGO_MAKEFLAGS" || k == "MAKEFLAGS"
        {
            c.env_remove(&*k);
        }
    }
    c.arg(sub).arg("--locked");
    c.arg("--manifest-path").arg(manifest_dir().join("upstream/Cargo.toml"));
    c.stderr(Stdio::inherit());
    c
}

fn stdout(mut c: Command) -> Res<String> {
    let out = c.output().map_err(|e| format!("cannot run {c:?}: {e}"))?;
    if !out.status.success() {
        return Err(format!("{c:?} failed ({})", out.status));
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

// ------------------------------------------------------------------ Apple

fn delegate() -> Res<()> {
    let mut c = cargo("build");
    let features: Vec<_> = ["accelerate", "metal", "metal-jit"]
        .into_iter()
        .filter(|f| env::var_os(format!("CARGO_FEATURE_{}", f.to_uppercase().replace('-', "_"))).is_some())
        .collect();
    c.args(["--message-format=json-render-diagnostics", "--features", &features.join(",")]);
    c.arg("--target").arg(env::var_os("TARGET").unwrap());
    c.arg("--target-dir").arg(out_dir().join("upstream"));
    if env::var("DEBUG").as_deref() != Ok("true") || env::var("PROFILE").as_deref() == Ok("release") {
        c.arg("--release");
    }
    let mut seen = false;
    for line in stdout(c)?.lines() {
        let Ok(m) = serde_json::from_str::<Value>(line) else { continue };
        if m["reason"] != "build-script-executed"
            || !m["package_id"].as_str().is_some_and(|id| id.contains("mlx-sys@0.7.0"))
        {
            continue;
        }
        seen = true;
        for p in m["linked_paths"].as_array().into_iter().flatten() {
            println!("cargo:rustc-link-search={}", p.as_str().unwrap());
        }
        for l in m["linked_libs"].as_array().into_iter().flatten() {
            println!("cargo:rustc-link-lib={}", l.as_str().unwrap());
        }
        let from = Path::new(m["out_dir"].as_str().unwrap()).join("bindings.rs");
        fs::copy(&from, out_dir().join("bindings.rs")).map_err(|e| format!("{}: {e}", from.display()))?;
    }
    println!("cargo:rustc-env=MLX_SYS_LIB_DIR=");
    seen.then_some(()).ok_or_else(|| "upstream build script reported nothing".into())
}

// ------------------------------------------------------------------ prebuilt libmlx

fn prebuilt() -> Res<()> {
    let mlx_c = mlx_c_dir()?;
    let mlx = mlx_dir()?;
    check_versions(&mlx_c, &mlx)?;
    let lib = mlx.join("lib");
    let out = out_dir();

    // mlx-c + our two compatibility files -> objects
    let mut sources: Vec<_> = list(&mlx_c.join("mlx/c"), "cpp")?;
    sources.push(manifest_dir().join("compat/linux.cpp"));
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++20")
        .opt_level(2)
        .debug(false)
        .warnings(false)
        .pic(true)
        .include(&mlx_c)
        .flag("-isystem")
        .flag(mlx.join("include"))
        .flag("-include")
        .flag(manifest_dir().join("compat/std_format.h"))
        .files(&sources);
    let mut objects = build.try_compile_intermediates().map_err(|e| format!("compiling mlx-c: {e}"))?;

    // A fast BLAS placed *before* libmlx: the dynamic loader searches libraries breadth
    // first, so its cblas_*/LAPACK symbols win over the reference ones bundled in the wheel.
    let blas = find_blas(&mlx)?;
    if let Some(Blas { forward: true, .. }) = blas {
        let mut asm = cc::Build::new();
        asm.file(manifest_dir().join("compat/blas_forward.S")).pic(true);
        objects.extend(asm.try_compile_intermediates().map_err(|e| format!("blas_forward: {e}"))?);
    }

    let so = out.join("libmlxc.so");
    let mut link = build.get_compiler().to_command();
    link.arg("-shared").arg("-o").arg(&so).arg(format!("-Wl,-soname,{}", so.display())).args(&objects);
    link.arg("-Wl,--no-as-needed");
    let mut rpath = vec![lib.clone()];
    if let Some(b) = &blas {
        link.arg(&b.path);
        rpath.push(b.path.parent().unwrap().to_path_buf());
        println!("cargo:rerun-if-changed={}", b.path.display());
    }
    link.arg(lib.join("libmlx.so")).arg("-Wl,-z,defs").arg("-lm");
    for dir in &rpath {
        link.arg(format!("-Wl,-rpath,{}", dir.display()));
    }
    stdout(link)?;

    println!("cargo:rerun-if-changed={}", lib.join("libmlx.so").display());
    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:rustc-link-lib=dylib=mlxc");
    println!("cargo:rustc-env=MLX_SYS_LIB_DIR={}", lib.display());
    println!("cargo:include={}", env::join_paths([&mlx.join("include"), &mlx_c]).unwrap().to_string_lossy());
    println!("cargo:lib={}", lib.display());
    println!("cargo:defines=");

    bindings(&mlx_c, &mlx, build.get_compiler().path())
}

/// The mlx-c sources inside the pinned upstream crate, wherever cargo keeps it.
fn mlx_c_dir() -> Res<PathBuf> {
    if let Some(dir) = env::var_os("MLX_C_DIR") {
        return Ok(dir.into());
    }
    let mut c = cargo("metadata");
    c.args(["--format-version", "1"]);
    let meta: Value = serde_json::from_str(&stdout(c)?).map_err(|e| e.to_string())?;
    meta["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|p| p["name"] == "mlx-sys")
        .and_then(|p| Some(Path::new(p["manifest_path"].as_str()?).parent()?.join("src/mlx-c")))
        .filter(|d| d.join("mlx/c/mlx.h").is_file())
        .ok_or_else(|| "mlx-c sources not found in the upstream mlx-sys crate".into())
}

fn mlx_dir() -> Res<PathBuf> {
    let ok = |d: &Path| d.join("lib/libmlx.so").is_file() && d.join("include/mlx/mlx.h").is_file();
    if let Some(dir) = env::var_os("MLX_DIR").map(PathBuf::from) {
        return if ok(&dir) { Ok(dir) } else { Err(format!("MLX_DIR={} has no lib/libmlx.so", dir.display())) };
    }
    let mut found: Vec<PathBuf> = Vec::new();
    for up in manifest_dir().ancestors() {
        found.push(up.join(".toolchain/mlx")); // pip install --target .toolchain
        found.extend(site_packages(&up.join(".venv")).map(|s| s.join("mlx")));
    }
    found.extend(env::var_os("VIRTUAL_ENV").and_then(|v| site_packages(Path::new(&v))).map(|s| s.join("mlx")));
    if let Some(d) = found.into_iter().find(|d| ok(d)) {
        return Ok(d);
    }
    let probe = "import importlib.util as u; print(*(u.find_spec('mlx').submodule_search_locations))";
    let mut py = Command::new("python3");
    py.args(["-c", probe]).stderr(Stdio::null());
    if let Some(d) = stdout(py).ok().map(|s| PathBuf::from(s.trim())).filter(|d| ok(d)) {
        return Ok(d);
    }
    Err("no libmlx.so found. Run:  python3 -m pip install --target .toolchain  \
         (in the workspace root), or set MLX_DIR to <site-packages>/mlx".into())
}

fn site_packages(venv: &Path) -> Option<PathBuf> {
    fs::read_dir(venv.join("lib")).ok()?.flatten().map(|e| e.path().join("site-packages")).find(|p| p.is_dir())
}

/// mlx-c pins one MLX release; its C++ ABI is only valid against exactly that one.
fn check_versions(mlx_c: &Path, mlx: &Path) -> Res<()> {
    let cmake = fs::read_to_string(mlx_c.join("CMakeLists.txt")).map_err(|e| e.to_string())?;
    let want = cmake.split("GIT_TAG v").nth(1).and_then(|s| s.split([')', ' ', '\n']).next()).unwrap_or("");
    let header = fs::read_to_string(mlx.join("include/mlx/version.h")).map_err(|e| e.to_string())?;
    let num = |k: &str| {
        header.split(&format!("#define MLX_VERSION_{k} ")).nth(1).and_then(|s| s.lines().next()).unwrap_or("?").trim()
    };
    let have = format!("{}.{}.{}", num("MAJOR"), num("MINOR"), num("PATCH"));
    println!("cargo:version={have}");
    if want == have {
        return Ok(());
    }
    Err(format!("mlx-c needs MLX {want}, but {} is MLX {have}", mlx.display()))
}

struct Blas {
    path: PathBuf,
    /// `scipy-openblas32` prefixes every symbol with `scipy_`: jump through blas_forward.S
    forward: bool,
}

fn find_blas(mlx: &Path) -> Res<Option<Blas>> {
    let choice = env::var("MLX_BLAS").unwrap_or_else(|_| "auto".into());
    let of = |path: PathBuf| {
        let forward = path.to_string_lossy().contains("scipy_openblas");
        path.is_file().then_some(Blas { path, forward })
    };
    match choice.as_str() {
        "reference" => Ok(None),
        "auto" => {
            let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap();
            let multi = format!("/usr/lib/{arch}-linux-gnu");
            let site = mlx.parent().unwrap();
            let found = [
                site.join("scipy_openblas32/lib/libscipy_openblas.so"),
                Path::new(&multi).join("openblas-pthread/libopenblas.so.0"),
                Path::new(&multi).join("libopenblas.so.0"),
                PathBuf::from("/usr/lib64/libopenblas.so.0"),
            ]
            .into_iter()
            .find_map(of);
            if found.is_none() {
                println!("cargo:warning=no OpenBLAS found: f32 matmul will use the wheel's slow reference BLAS");
            }
            Ok(found)
        }
        path => of(path.into()).map(Some).ok_or_else(|| format!("MLX_BLAS={path}: no such file")),
    }
}

fn bindings(mlx_c: &Path, mlx: &Path, cxx: &Path) -> Res<()> {
    // libclang: LIBCLANG_PATH, else the one of the PyPI `libclang` wheel beside mlx, else the system's.
    let wheel = mlx.parent().unwrap().join("clang/native");
    if env::var_os("LIBCLANG_PATH").is_none() && wheel.join("libclang.so").is_file() {
        env::set_var("LIBCLANG_PATH", &wheel);
    }
    let mut b = bindgen::Builder::default()
        .clang_arg(format!("-I{}", mlx_c.display()))
        .blocklist_function("malloc")
        .blocklist_function("realloc");
    // The PyPI libclang has no builtin headers (float.h, stdbool.h): borrow the compiler's.
    let mut c = Command::new(cxx);
    c.arg("-print-file-name=include");
    b = b.clang_args(["-idirafter", stdout(c)?.trim()]);
    for h in list(&mlx_c.join("mlx/c"), "h")? {
        b = b.header(h.to_string_lossy());
    }
    b.generate()
        .map_err(|e| format!("bindgen: {e}"))?
        .write_to_file(out_dir().join("bindings.rs"))
        .map_err(|e| e.to_string())
}

fn list(dir: &Path, ext: &str) -> Res<Vec<PathBuf>> {
    let mut v: Vec<_> = fs::read_dir(dir)
        .map_err(|e| format!("{}: {e}", dir.display()))?
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == ext))
        .collect();
    v.sort();
    Ok(v)
}
