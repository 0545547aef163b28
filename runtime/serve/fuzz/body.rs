//! The bodies of requests.

mod driver;
mod mutate;

libfuzzer_sys::fuzz_target!(|data: &[u8]| mgraph_serve::fuzz::body(data));
libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate::mutate(data, size, max_size, seed)
});

fn main() {
    driver::main()
}
