//! MLX (with OpenBLAS), melior and IREE in one process, MLX first, numbers checked.
//!
//! glibc takes the static TLS of all loaded libraries out of every thread's stack. OpenBLAS reserves 143 KiB of it and
//! IREE's workers ask for 128 KiB of stack, so without the larger stack that `hlo::iree` asks for, starting IREE fails with
//! "thread creation failed with 22".

use std::{error::Error, sync::Arc};

use mgraph_runtime::{
    hlo::{Build, BuildOptions, DType, compile, emit, iree},
    probes::Probes,
    tensor::Tensor,
};
use mlx_rs::{Array, ops};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const X: [f32; 6] = [1., 2., 3., 4., 5., 6.];
const W: [f32; 6] = [1., 0.5, -3., -1., 2., 0.25];
/// `X: [2,3]` times the transpose of `W: [2,3]`; exact in f32.
const EXPECTED: [f32; 4] = [-7., 3.75, -11.5, 7.5];

fn by_mlx() -> Result<Vec<f32>> {
    let product = ops::matmul(Array::from_slice(&X, &[2, 3]), Array::from_slice(&W, &[2, 3]).t())?;
    product.eval()?;
    Ok(product.as_slice::<f32>().to_vec())
}

fn tensor(values: &[f32], shape: &[usize]) -> Tensor {
    let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Tensor { dtype: DType::F32, shape: shape.to_vec(), bytes }
}

/// Its workers are counted in a process of their own, where IREE starts for the first time.
#[cfg(target_os = "linux")]
#[test]
fn as_many_workers_as_were_asked_for() -> Result {
    const COUNTING: &str = "COUNT_WORKERS";
    if std::env::var_os(COUNTING).is_some() {
        let _first = iree::Runtime::new()?;
        // A worker takes its name once it runs.
        for _ in 0..100 {
            let names =
                std::fs::read_dir("/proc/self/task")?.map(|task| std::fs::read_to_string(task?.path().join("comm")));
            let names = names.collect::<std::io::Result<Vec<_>>>()?;
            if iree::threads() == names.iter().filter(|name| name.starts_with("iree-worker")).count().to_string() {
                return Ok(());
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        return Err(format!("{} workers were asked for", iree::threads()).into());
    }
    for (asked, started) in [("1", true), ("3", true), ("0", false), ("many", false)] {
        let child = std::process::Command::new(std::env::current_exe()?)
            .args(["--exact", "as_many_workers_as_were_asked_for"])
            .env(COUNTING, "yes")
            .env(iree::THREADS_VARIABLE, asked)
            .output()?;
        assert_eq!(child.status.success(), started, "{asked}: {child:?}");
        assert_eq!(!started, String::from_utf8_lossy(&child.stdout).contains("at least 1"), "{asked}: {child:?}");
    }
    Ok(())
}

#[test]
fn with_mlx_loaded() -> Result {
    assert_eq!(by_mlx()?, EXPECTED);

    let mut build = Build::new(BuildOptions {
        float: DType::F32,
        fused: false,
        probes: Probes::Unread,
        positions: 1,
        weights: Arc::default(),
        windows: Default::default(),
        states: Arc::default(),
    });
    let (x, w) = (build.input(DType::F32, &[2, 3]), build.input(DType::F32, &[2, 3]));
    let y = build.dot(x, w);
    let graph = build.finish(&[y])?;
    let module = compile::compile(&emit::text(&graph)?, &compile::FLAGS)?;
    let runtime = iree::Runtime::new()?;
    let types = graph.results.iter().map(|r| graph.ty(r.value).clone()).collect();
    let program = runtime.load(&module, types)?;
    let by_iree = || -> Result<Tensor> {
        let results =
            program.call(vec![runtime.upload(&tensor(&X, &[2, 3]))?, runtime.upload(&tensor(&W, &[2, 3]))?])?;
        Ok(runtime.download(&results[0])?)
    };
    assert_eq!(by_iree()?, tensor(&EXPECTED, &[2, 2]));

    // Large enough that OpenBLAS starts its own threads while IREE's are up.
    let ones = Array::ones::<f32>(&[512, 512])?;
    let product = ops::matmul(&ones, &ones)?;
    product.eval()?;
    assert!(product.as_slice::<f32>().iter().all(|&v| v == 512.0));

    assert_eq!(by_mlx()?, EXPECTED);
    assert_eq!(by_iree()?, tensor(&EXPECTED, &[2, 2]));
    Ok(())
}
