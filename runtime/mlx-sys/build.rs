//! Stands in for the build script of upstream `mlx-sys`, which knows Apple targets only.
//!
//! * Apple targets: runs the unmodified upstream build through `upstream/Cargo.toml` and relays what it reports.
//! * Elsewhere: compiles the mlx-c sources of that same pinned upstream crate against the headers of a prebuilt
//!   `libmlx.so` (the PyPI wheel `mlx-cpu`, put into `.toolchain` by `.ci/setup`) and links them into `libmlxc.so`. Its
//!   SONAME is its absolute path, so no dependent needs an rpath; binaries are therefore tied to this build folder.
//!
//! Environment: `MLX_DIR` (folder with `include/` and `lib/`) and `MLX_BLAS` (path of an OpenBLAS) override the search.

use serde_json::Value;
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

type Res<T> = Result<T, String>;

fn main() -> ExitCode {
    for name in ["MLX_DIR", "MLX_BLAS"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    for path in ["build.rs", "compat", "upstream/Cargo.toml", "upstream/Cargo.lock"] {
        println!("cargo:rerun-if-changed={path}");
    }
    let apple = env::var("CARGO_CFG_TARGET_VENDOR").as_deref() == Ok("apple");
    match if apple { upstream() } else { prebuilt() } {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("\nmlx-sys: {sentence}\n");
            ExitCode::FAILURE
        }
    }
}

/// A variable that cargo sets for every build script.
fn var(name: &str) -> Res<PathBuf> {
    env::var_os(name).map(PathBuf::from).ok_or_else(|| format!("{name} is not set; run this through cargo"))
}

/// `cargo` on the helper manifest, free of the variables that the outer cargo set for this script.
fn cargo(subcommand: &str) -> Res<Command> {
    let mut command = Command::new(var("CARGO")?);
    for (key, _) in env::vars_os() {
        let key = key.to_string_lossy();
        let of_this_script = ["CARGO_FEATURE_", "CARGO_CFG_", "CARGO_PKG_", "CARGO_MANIFEST"]
            .iter()
            .any(|prefix| key.starts_with(prefix))
            || ["OUT_DIR", "TARGET", "HOST", "CARGO_ENCODED_RUSTFLAGS", "CARGO_MAKEFLAGS", "MAKEFLAGS"]
                .contains(&&*key);
        if of_this_script {
            command.env_remove(&*key);
        }
    }
    command.args([subcommand, "--locked", "--manifest-path"]);
    command.arg(var("CARGO_MANIFEST_DIR")?.join("upstream/Cargo.toml"));
    Ok(command)
}

/// Runs to the end and returns standard output; standard error goes to cargo's log.
fn run(mut command: Command) -> Res<String> {
    let out = command.stderr(Stdio::inherit()).output().map_err(|e| format!("cannot run {command:?}: {e}"))?;
    if !out.status.success() {
        return Err(format!("{command:?} failed ({})", out.status));
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

fn upstream() -> Res<()> {
    let mut command = cargo("build")?;
    let features: Vec<_> = ["accelerate", "metal", "metal-jit"]
        .into_iter()
        .filter(|f| env::var_os(format!("CARGO_FEATURE_{}", f.to_uppercase().replace('-', "_"))).is_some())
        .collect();
    command.args(["--message-format=json-render-diagnostics", "--features", &features.join(",")]);
    command.arg("--target").arg(var("TARGET")?);
    command.arg("--target-dir").arg(var("OUT_DIR")?.join("upstream"));
    command.arg("--release");

    let log = run(command)?;
    let report = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find(|m| {
            m["reason"] == "build-script-executed"
                && m["package_id"].as_str().is_some_and(|id| id.contains("mlx-sys@0.7.0"))
        })
        .ok_or("the upstream build script reported nothing")?;
    for path in report["linked_paths"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        println!("cargo:rustc-link-search={path}");
    }
    for lib in report["linked_libs"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        println!("cargo:rustc-link-lib={lib}");
    }
    let bindings = Path::new(report["out_dir"].as_str().unwrap_or_default()).join("bindings.rs");
    fs::copy(&bindings, var("OUT_DIR")?.join("bindings.rs"))
        .map(drop)
        .map_err(|e| format!("{}: {e}", bindings.display()))
}

fn prebuilt() -> Res<()> {
    let here = var("CARGO_MANIFEST_DIR")?;
    let out = var("OUT_DIR")?;
    let mlx_c = mlx_c_sources()?;
    let mlx = mlx_dir(&here)?;
    let lib = mlx.join("lib");
    check_versions(&mlx_c, &mlx)?;

    let mut sources = list(&mlx_c.join("mlx/c"), "cpp")?;
    sources.push(here.join("compat/linux.cpp"));
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
        .flag(here.join("compat/std_format.h"))
        .files(&sources);
    let mut objects = build.try_compile_intermediates().map_err(|e| format!("compiling mlx-c: {e}"))?;

    // The dynamic loader searches libraries breadth first, in the order of the link line: an OpenBLAS before libmlx wins
    // over the reference BLAS inside the wheel (measured 45-120x on large f32 products).
    let blas = find_blas(&mlx)?;
    if blas.as_deref().is_some_and(is_scipy) {
        let mut forward = cc::Build::new();
        forward.file(here.join("compat/blas_forward.S")).pic(true);
        objects.extend(forward.try_compile_intermediates().map_err(|e| format!("compiling blas_forward.S: {e}"))?);
    }

    let so = out.join("libmlxc.so");
    let mut link = build.get_compiler().to_command();
    link.arg("-shared").arg("-o").arg(&so).arg(format!("-Wl,-soname,{}", so.display())).args(&objects);
    link.arg("-Wl,--no-as-needed").args(&blas).arg(lib.join("libmlx.so"));
    link.args(["-Wl,-z,defs", "-lm"]);
    for dir in blas.iter().filter_map(|b| b.parent()).chain([lib.as_path()]) {
        link.arg(format!("-Wl,-rpath,{}", dir.display()));
    }
    run(link)?;

    for path in blas.iter().chain([&lib.join("libmlx.so")]) {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:rustc-link-lib=dylib=mlxc");
    bindings(&mlx_c, &out)
}

/// The mlx-c sources inside the pinned upstream crate, wherever cargo keeps it.
fn mlx_c_sources() -> Res<PathBuf> {
    let mut command = cargo("metadata")?;
    command.args(["--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&run(command)?).map_err(|e| format!("cargo metadata: {e}"))?;
    metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|p| p["name"] == "mlx-sys")
        .and_then(|p| Some(Path::new(p["manifest_path"].as_str()?).parent()?.join("src/mlx-c")))
        .filter(|dir| dir.join("mlx/c/mlx.h").is_file())
        .ok_or_else(|| "the upstream mlx-sys crate has no mlx-c sources".into())
}

fn mlx_dir(here: &Path) -> Res<PathBuf> {
    let holds_mlx = |dir: &PathBuf| dir.join("lib/libmlx.so").is_file() && dir.join("include/mlx/mlx.h").is_file();
    if let Some(dir) = env::var_os("MLX_DIR").map(PathBuf::from) {
        let why = format!("MLX_DIR={} lacks lib/libmlx.so or include/mlx/mlx.h", dir.display());
        return Some(dir).filter(holds_mlx).ok_or(why);
    }
    here.ancestors()
        .map(|dir| dir.join(".toolchain/mlx"))
        .find(holds_mlx)
        .ok_or_else(|| "no libmlx.so found. Run `make setup` in the workspace root, or set MLX_DIR".into())
}

/// mlx-c is written for one MLX release, and the C++ ABI holds for exactly that one.
fn check_versions(mlx_c: &Path, mlx: &Path) -> Res<()> {
    let read = |path: PathBuf| fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()));
    let cmake = read(mlx_c.join("CMakeLists.txt"))?;
    let want = cmake.split("GIT_TAG v").nth(1).and_then(|s| s.split([')', ' ', '\n']).next()).unwrap_or("?");
    let header = read(mlx.join("include/mlx/version.h"))?;
    let number = |key: &str| {
        let define = format!("#define MLX_VERSION_{key} ");
        header.split(&define).nth(1).and_then(|s| s.lines().next()).unwrap_or("?").trim().to_owned()
    };
    let have = [number("MAJOR"), number("MINOR"), number("PATCH")].join(".");
    if want != have {
        return Err(format!("mlx-c needs MLX {want}, but {} is MLX {have}; run `make setup`", mlx.display()));
    }
    Ok(())
}

/// `scipy-openblas32` prefixes every symbol with `scipy_`, so calls go through `compat/blas_forward.S`.
fn is_scipy(blas: &Path) -> bool {
    blas.to_string_lossy().contains("scipy_openblas")
}

fn find_blas(mlx: &Path) -> Res<Option<PathBuf>> {
    if let Some(path) = env::var_os("MLX_BLAS").map(PathBuf::from) {
        let why = format!("MLX_BLAS={} is not a file", path.display());
        return Some(path).filter(|p| p.is_file()).map(Some).ok_or(why);
    }
    let multiarch = format!("/usr/lib/{}-linux-gnu", var("CARGO_CFG_TARGET_ARCH")?.display());
    let found = [
        mlx.with_file_name("scipy_openblas32").join("lib/libscipy_openblas.so"),
        Path::new(&multiarch).join("libopenblas.so.0"),
        PathBuf::from("/usr/lib64/libopenblas.so.0"),
    ]
    .into_iter()
    .find(|p| p.is_file());
    if found.is_none() {
        println!("cargo:warning=no OpenBLAS found: f32 matmul will use the slow reference BLAS of the mlx wheel");
    }
    Ok(found)
}

fn bindings(mlx_c: &Path, out: &Path) -> Res<()> {
    let mut builder = bindgen::Builder::default()
        .clang_arg(format!("-I{}", mlx_c.display()))
        .blocklist_function("malloc")
        .blocklist_function("realloc");
    for header in list(&mlx_c.join("mlx/c"), "h")? {
        builder = builder.header(header.to_string_lossy());
    }
    builder
        .generate()
        .map_err(|e| format!("bindgen: {e}"))?
        .write_to_file(out.join("bindings.rs"))
        .map_err(|e| format!("writing the bindings: {e}"))
}

fn list(dir: &Path, extension: &str) -> Res<Vec<PathBuf>> {
    let mut files: Vec<_> = fs::read_dir(dir)
        .map_err(|e| format!("{}: {e}", dir.display()))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .collect();
    files.sort();
    Ok(files)
}
