//! IREE's runtime on the CPU: buffers in device memory, loaded programs, calls.
//!
//! Everything here stays on the thread that made it.

use std::{
    ffi::{CString, c_char, c_int, c_void},
    sync::OnceLock,
};

use bytemuck::Pod;
use eerie::runtime::{self as eerie_runtime, BufferElement, BufferView, DeviceSpec, Value};
use half::{bf16, f16};

use super::types::Type;
use crate::{
    error::{Result, anyhow, bail, ensure},
    memory,
    tensor::{DType, Tensor},
};

/// Of the runtime sources that eerie brings; the compiler must be of the same version.
pub const VERSION: &str = "3.13.0";

/// Worker threads of IREE; one per core where not set. Read once per process.
pub const THREADS_VARIABLE: &str = "MLXCEL_THREADS";

unsafe extern "C" {
    /// Part of the runtime archive that eerie-sys links, without a binding there. Mode 0 is the default.
    fn iree_flags_parse(mode: c_int, argc: *mut c_int, argv: *mut *mut *mut c_char) -> *mut c_void;
}

/// Set what IREE reads once per process, before its first instance.
///
/// The stack of its workers: glibc takes the static TLS of all loaded libraries out of a thread's stack. OpenBLAS, which
/// MLX brings, reserves 143 KiB of it; IREE asks for 128 KiB, and `pthread_create` then answers EINVAL. The test
/// `with_mlx_loaded` holds this.
fn configure() -> Result<()> {
    static DONE: OnceLock<std::result::Result<(), String>> = OnceLock::new();
    let once = || {
        let mut flags = vec!["--task_worker_stack_size=2097152".to_owned()];
        if let Some(threads) = std::env::var_os(THREADS_VARIABLE) {
            let count = threads.to_str().and_then(|t| t.parse::<u16>().ok()).filter(|n| *n > 0);
            let count = count
                .ok_or_else(|| format!("{THREADS_VARIABLE} is {threads:?}; give a number of threads, at least 1"))?;
            flags.push(format!("--task_topology_group_count={count}"));
        }
        let program = std::iter::once("mlxcel".to_owned());
        let words = program.chain(flags).map(CString::new).collect::<std::result::Result<Vec<_>, _>>();
        let words = words.map_err(|e| e.to_string())?;
        let mut count = words.len() as c_int;
        // The parser keeps pointers into these for the life of the process.
        let mut pointers: Vec<*mut c_char> = words.into_iter().map(CString::into_raw).collect();
        pointers.push(std::ptr::null_mut());
        let mut argv = Box::leak(pointers.into_boxed_slice()).as_mut_ptr();
        // SAFETY: argc and argv describe `count` NUL-terminated strings that live forever, and a null after them.
        let status = unsafe { iree_flags_parse(0, &mut count, &mut argv) };
        if status.is_null() { Ok(()) } else { Err("IREE refused its process flags".to_owned()) }
    };
    DONE.get_or_init(once).clone().map_err(|message| anyhow!(message))
}

/// How many workers IREE was told to have.
pub fn threads() -> String {
    std::env::var(THREADS_VARIABLE).unwrap_or_else(|_| "one per physical core".to_owned())
}

/// One device: the cores of this machine.
pub struct Runtime {
    inner: eerie_runtime::Runtime,
}

/// A tensor in device memory. Cloning shares the memory.
#[derive(Clone)]
pub struct Buffer {
    value: Value,
    ty: Type,
}

impl Buffer {
    pub fn ty(&self) -> &Type {
        &self.ty
    }
}

/// A compiled module, loaded.
pub struct Program {
    function: eerie_runtime::Function,
    /// Types of the results, in order.
    results: Vec<Type>,
}

impl Runtime {
    pub fn new() -> Result<Runtime> {
        configure()?;
        memory::keep_freed();
        let inner = eerie_runtime::Runtime::new(DeviceSpec::local_task()).map_err(|e| anyhow!("starting IREE: {e}"))?;
        Ok(Runtime { inner })
    }

    pub fn upload(&self, tensor: &Tensor) -> Result<Buffer> {
        let shape: Vec<i64> = tensor.shape.iter().map(|d| *d as i64).collect();
        self.buffer(Type::new(tensor.dtype, &shape), &tensor.bytes)
    }

    /// All elements zero.
    pub fn zeros(&self, ty: &Type) -> Result<Buffer> {
        let size = usize::try_from(ty.elements()).ok().and_then(|count| count.checked_mul(ty.dtype.size()));
        let mut bytes = Vec::new();
        let room = size.filter(|size| bytes.try_reserve_exact(*size).is_ok());
        let size =
            room.ok_or_else(|| anyhow!("there is no memory for a state {ty}. Lower --ctx-size or --max-tokens"))?;
        bytes.resize(size, 0);
        self.buffer(ty.clone(), &bytes)
    }

    /// A tensor from its bytes, row-major and little-endian.
    pub fn buffer(&self, ty: Type, bytes: &[u8]) -> Result<Buffer> {
        let (shape, expected) = (ty.sizes(), ty.elements() as usize * ty.dtype.size());
        ensure!(bytes.len() == expected, "{} bytes for {ty}, which has {expected}", bytes.len());
        let value = match ty.dtype {
            DType::F64 => self.view::<f64>(&shape, bytes)?.into(),
            DType::F32 => self.view::<f32>(&shape, bytes)?.into(),
            DType::F16 => self.view::<f16>(&shape, bytes)?.into(),
            DType::BF16 => self.view::<bf16>(&shape, bytes)?.into(),
            // The module's signature has no sign: IREE lowers `ui32` to `i32`.
            DType::I32 | DType::U32 => self.view::<i32>(&shape, bytes)?.into(),
            DType::U8 => self.view::<i8>(&shape, bytes)?.into(),
            DType::Bool => {
                let values: Vec<bool> = bytes.iter().map(|b| *b != 0).collect();
                self.inner.buffer_view(&shape, &values).map_err(|e| anyhow!("{e}"))?.into()
            }
        };
        Ok(Buffer { value, ty })
    }

    fn view<T: BufferElement + Pod>(&self, shape: &[usize], bytes: &[u8]) -> Result<BufferView<T>> {
        let copied: Vec<T>;
        let values: &[T] = match bytemuck::try_cast_slice(bytes) {
            Ok(values) => values,
            Err(bytemuck::PodCastError::TargetAlignmentGreaterAndInputNotAligned) => {
                copied = bytemuck::pod_collect_to_vec(bytes);
                &copied
            }
            Err(error) => bail!("{} bytes are no whole number of elements: {error}", bytes.len()),
        };
        self.inner.buffer_view(shape, values).map_err(|e| anyhow!("{e}"))
    }

    /// Copy a buffer to the host.
    pub fn download(&self, buffer: &Buffer) -> Result<Tensor> {
        fn bytes<T: BufferElement + Pod>(view: &BufferView<T>) -> Result<Vec<u8>> {
            let values = view.read().map_err(|e| anyhow!("{e}"))?;
            Ok(bytemuck::try_cast_vec(values).unwrap_or_else(|(_, values)| bytemuck::cast_slice(&values).to_vec()))
        }
        let bytes = match &buffer.value {
            Value::F64(view) => bytes(view),
            Value::F32(view) => bytes(view),
            Value::F16(view) => bytes(view),
            Value::Bf16(view) => bytes(view),
            Value::I32(view) => bytes(view),
            Value::U32(view) => bytes(view),
            Value::I8(view) => bytes(view),
            Value::U8(view) => bytes(view),
            Value::Bool(view) => view.read().map(|v| v.into_iter().map(u8::from).collect()).map_err(|e| anyhow!("{e}")),
            Value::I16(_) | Value::U16(_) | Value::I64(_) | Value::U64(_) => {
                Err(anyhow!("IREE returned an element type that {} does not have", buffer.ty))
            }
        }?;
        let shape = buffer.ty.sizes();
        let expected = buffer.ty.elements() as usize * buffer.ty.dtype.size();
        ensure!(bytes.len() == expected, "IREE returned {} bytes for {}, which has {expected}", bytes.len(), buffer.ty);
        Ok(Tensor { dtype: buffer.ty.dtype, shape, bytes })
    }

    /// Load a compiled module; `results` are the types of what its `main` returns.
    pub fn load(&self, vmfb: &[u8], results: Vec<Type>) -> Result<Program> {
        let program = self.inner.load_vmfb(vmfb).map_err(|e| anyhow!("loading a compiled module: {e}"))?;
        let function = program.function("module.main").map_err(|e| anyhow!("a compiled module without `main`: {e}"))?;
        Ok(Program { function, results })
    }
}

impl Program {
    /// Call `main`. IREE writes into buffers that a result takes over.
    pub fn call(&self, arguments: Vec<Buffer>) -> Result<Vec<Buffer>> {
        self.call_for(arguments, &self.results)
    }

    /// As [`Program::call`], where the shapes of results are not always the same.
    pub fn call_for(&self, arguments: Vec<Buffer>, results: &[Type]) -> Result<Vec<Buffer>> {
        let values = self.function.invoke(arguments.into_iter().map(|b| b.value)).map_err(|e| anyhow!("IREE: {e}"))?;
        ensure!(values.len() == results.len(), "IREE returned {} results, not {}", values.len(), results.len());
        Ok(values.into_iter().zip(results).map(|(value, ty)| Buffer { value, ty: ty.clone() }).collect())
    }
}
