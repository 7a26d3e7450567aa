//! A minimal guard executable, as `corro guard`, for the tests of this crate.

fn main() {
    corro_launch::guard::run()
}
