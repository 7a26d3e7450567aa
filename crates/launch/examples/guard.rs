//! The smallest executable that can guard: what `corro guard` does, for the tests of this crate.

fn main() {
    corro_launch::guard::run()
}
