//! The folder of compiled modules when it is broken, full or closed: the server compiles, and serves.

use std::{
    fs::{self, File},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use super::{
    COMPLETE, PATIENCE,
    server::{SERVE, Server},
    small_vlm::small_vlm,
};

const GREEDY: &str = r#"{"prompt":"One, two,","max_tokens":8,"temperature":0,"ignore_eos":true}"#;
const SMALL: [&str; 6] = ["--backend", "iree", "--ctx-size", "16", "--parallel", "1"];

/// The text of the answer.
fn greedy(server: &Server) -> String {
    let (status, answer) = server.send(COMPLETE, GREEDY);
    assert_eq!(status, 200, "{answer}");
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    serde_json::from_str::<serde_json::Value>(body).unwrap()["choices"][0]["text"].to_string()
}

fn kept(cache: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(cache).unwrap().map(|file| file.unwrap().path());
    files.filter(|file| file.extension().is_some_and(|kind| kind == "vmfb")).collect()
}

#[test]
fn a_cache_of_modules_is_shared_mended_and_done_without() {
    let (model, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    small_vlm(model.path());
    let start = || Server::loading(model.path(), &SMALL, &[("MLXCEL_CACHE", cache.path())]);

    // Two on one empty cache: what one compiles, the other waits for.
    let both = [start(), start()];
    both.iter().for_each(|server| server.until("/health", 200));
    let expected = greedy(&both[0]);
    assert_eq!(greedy(&both[1]), expected);
    drop(both);
    let modules = kept(cache.path());
    assert!(!modules.is_empty());

    // Cut, flipped, emptied: compiled again.
    for (at, module) in modules.iter().enumerate() {
        let mut bytes = fs::read(module).unwrap();
        match at % 3 {
            0 => bytes.truncate(bytes.len() / 2),
            1 => bytes.iter_mut().skip(100).step_by(1000).for_each(|byte| *byte ^= 0x55),
            _ => bytes.clear(),
        }
        fs::write(module, bytes).unwrap();
    }
    let server = start();
    assert!(compiles(&server));
    assert_eq!(greedy(&server), expected);
    drop(server);
    assert_eq!(kept(cache.path()).len(), modules.len());
    assert!(modules.iter().all(|module| fs::metadata(module).unwrap().len() > 1000), "whole again");

    // Read-only, it is still of use; closed, it is not.
    for (mode, compiled) in [(0o555, false), (0o000, true)] {
        fs::set_permissions(cache.path(), fs::Permissions::from_mode(mode)).unwrap();
        let mut command = bound_by_permissions(cache.path());
        command.env("MLXCEL_CACHE", cache.path()).args(SERVE).arg(model.path()).args(SMALL);
        let server = Server::by(command);
        assert_eq!(compiles(&server), compiled, "{mode:o}");
        assert_eq!(greedy(&server), expected);
    }
    fs::set_permissions(cache.path(), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(kept(cache.path()).len(), modules.len());

    // Full.
    let full = tempfile::tempdir().unwrap();
    let mut command = full_disk(full.path());
    command.args(SERVE).arg(model.path()).args(SMALL);
    let server = Server::by(command);
    assert!(compiles(&server));
    assert_eq!(greedy(&server), expected);
}

/// Waits until it takes requests; whether it said meanwhile that it compiles.
fn compiles(server: &Server) -> bool {
    let begun = Instant::now();
    let mut said = false;
    loop {
        let (status, health) = server.send("GET /health", "");
        said |= health.contains("compiling");
        if status == 200 {
            return said;
        }
        assert!(begun.elapsed() < 2 * PATIENCE, "{health}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The binary, where the permissions of `closed` hold even if root runs this.
fn bound_by_permissions(closed: &Path) -> Command {
    let exe = env!("CARGO_BIN_EXE_mlxcel");
    if File::create(closed.join("probe")).is_err() {
        return Command::new(exe);
    }
    fs::remove_file(closed.join("probe")).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-dac_override,-dac_read_search", exe]);
    command
}

/// The binary with its cache in `folder`, where a disk of 16 KB is mounted that no module fits on. Where none may be mounted the
/// cache is no folder at all.
fn full_disk(folder: &Path) -> Command {
    let line = "mount -t tmpfs -o size=16k none \"$MLXCEL_CACHE\" && exec \"$@\"";
    let mounts = ["-rm", "sh", "-c", line, "sh"];
    let can = Command::new("unshare").args(mounts).arg("true").env("MLXCEL_CACHE", folder).status();
    if can.is_ok_and(|status| status.success()) {
        let mut command = Command::new("unshare");
        command.args(mounts).arg(env!("CARGO_BIN_EXE_mlxcel")).env("MLXCEL_CACHE", folder);
        return command;
    }
    let file = folder.join("file");
    fs::write(&file, "").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlxcel"));
    command.env("MLXCEL_CACHE", file);
    command
}
