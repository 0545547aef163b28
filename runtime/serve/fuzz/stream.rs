//! The tokens of answers.

mod driver;

libfuzzer_sys::fuzz_target!(|data: &[u8]| mgraph_serve::fuzz::stream(data));

fn main() {
    driver::main()
}
