//! Tells the crate how it is being built, so that benchmarks can refuse a debug build.

fn main() {
    let profile = std::env::var("PROFILE").unwrap_or_default();
    println!("cargo:rustc-env=BUILD_PROFILE={profile}");
}
