//! MLX (with OpenBLAS), melior and IREE in one process, MLX first, numbers checked.
//!
//! glibc takes the static TLS of all loaded libraries out of every thread's stack. OpenBLAS reserves 143 KiB of it and
//! IREE's workers ask for 128 KiB of stack, so without a larger stack `Runtime::new(local_task)` fails with
//! "thread creation failed with 22".

use eerie::{
    compiler::Compiler,
    runtime::{DeviceSpec, Runtime},
};
use melior::{
    Context,
    dialect::{DialectHandle, func},
    ir::{
        Attribute, Block, BlockLike, Identifier, Location, Module, Region, RegionLike, Type,
        attribute::{StringAttribute, TypeAttribute},
        operation::{OperationBuilder, OperationLike, OperationPrintingFlags},
        r#type::FunctionType,
    },
};
use mlx_rs::{Array, ops};
use std::{
    error::Error,
    ffi::{CString, c_char, c_int, c_void},
    ptr,
};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

unsafe extern "C" {
    fn iree_flags_parse(mode: u32, argc: *mut c_int, argv: *mut *mut *mut c_char) -> *mut c_void;
}

/// IREE keeps pointers into the arguments, so they live as long as the process.
fn raise_worker_stack() -> Result {
    let argv = [
        CString::new("one_process")?.into_raw(),
        CString::new("--task_worker_stack_size=2097152")?.into_raw(),
        ptr::null_mut(),
    ];
    let (mut argc, mut argv) = (2, Box::leak(Box::new(argv)).as_mut_ptr());
    // SAFETY: argc and argv describe a null-terminated list of C strings that is never freed.
    let status = unsafe { iree_flags_parse(0, &mut argc, &mut argv) };
    if status.is_null() { Ok(()) } else { Err("IREE refused its flags".into()) }
}

/// `f(x: [2,3], w: [3,2]) = x . w`, as StableHLO text.
fn stablehlo() -> Result<String> {
    let context = Context::new_with_threading(false);
    DialectHandle::func().load_dialect(&context);
    context.set_allow_unregistered_dialects(true);
    let location = Location::unknown(&context);
    let parse_type = |text| Type::parse(&context, text).ok_or("type");
    let parse_attribute = |text| Attribute::parse(&context, text).ok_or("attribute");

    let (x, w, y) =
        (parse_type("tensor<2x3xf32>")?, parse_type("tensor<3x2xf32>")?, parse_type("tensor<2x2xf32>")?);
    let block = Block::new(&[(x, location), (w, location)]);
    let dot = block.append_operation(
        OperationBuilder::new("stablehlo.dot_general", location)
            .add_operands(&[block.argument(0)?.into(), block.argument(1)?.into()])
            .add_results(&[y])
            .add_attributes(&[(
                Identifier::new(&context, "dot_dimension_numbers"),
                parse_attribute(
                    "#stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>",
                )?,
            )])
            .build()?,
    );
    block.append_operation(func::r#return(&[dot.result(0)?.into()], location));
    let region = Region::new();
    region.append_block(block);
    let module = Module::new(location);
    module.body().append_operation(func::func(
        &context,
        StringAttribute::new(&context, "f"),
        TypeAttribute::new(FunctionType::new(&context, &[x, w], &[y]).into()),
        region,
        &[],
        location,
    ));
    Ok(module
        .as_operation()
        .to_string_with_flags(OperationPrintingFlags::new().print_generic_operation_form().use_local_scope())?)
}

#[test]
fn mlx_then_melior_and_iree_then_mlx() -> Result {
    let x = [1f32, 2., 3., 4., 5., 6.];
    let w = [1f32, -1., 0.5, 2., -3., 0.25];
    let expected = [-7f32, 3.75, -11.5, 7.5];

    let by_mlx = || -> Result<Vec<f32>> {
        let product = ops::matmul(&Array::from_slice(&x, &[2, 3]), &Array::from_slice(&w, &[3, 2]))?;
        product.eval()?;
        Ok(product.as_slice::<f32>().to_vec())
    };
    assert_eq!(by_mlx()?, expected);

    raise_worker_stack()?;
    let library = option_env!("IREE_COMPILER_LIB").ok_or("IREE_COMPILER_LIB is not set; see .cargo/config.toml")?;
    let vmfb = Compiler::with_library(library)?.compile_str(
        &stablehlo()?,
        [
            "--iree-hal-target-device=local",
            "--iree-hal-local-target-device-backends=llvm-cpu",
            "--iree-llvmcpu-target-cpu=host",
            "--iree-input-type=stablehlo",
            "--iree-opt-level=O2",
        ],
    )?;
    let runtime = Runtime::new(DeviceSpec::local_task())?;
    let function = runtime.load_vmfb(&vmfb)?.function("module.f")?;
    let by_iree = || -> Result<Vec<f32>> {
        let (x, w) = (runtime.buffer_view(&[2, 3], &x)?, runtime.buffer_view(&[3, 2], &w)?);
        Ok(function.invoke_one::<f32>([&x, &w])?.read()?)
    };
    assert_eq!(by_iree()?, expected);

    // Large enough that OpenBLAS starts its own threads while IREE's are up.
    let ones = Array::ones::<f32>(&[512, 512])?;
    let product = ops::matmul(&ones, &ones)?;
    product.eval()?;
    assert!(product.as_slice::<f32>().iter().all(|&v| v == 512.0));

    assert_eq!(by_mlx()?, expected);
    assert_eq!(by_iree()?, expected);
    Ok(())
}
