//! JMESPath's numeric functions with Python's integer results, as in `az`. The crate's own use floating point and would print 30.0 for the sum of 10
//! and 20.

use jmespath::functions::{ArgumentType, CustomFunction, Signature};
use jmespath::{Context, Rcvar, Runtime, SearchResult, Variable};
use serde_json::Number;

type NumericFunction = fn(&[Rcvar], &mut Context<'_>) -> SearchResult;

/// A runtime with all functions of JMESPath, these replaced.
pub fn runtime() -> Runtime {
    let mut runtime = Runtime::new();
    runtime.register_builtin_functions();
    let mut register = |name: &str, input: ArgumentType, function: NumericFunction| {
        let signature = Signature::new(vec![input], None);
        runtime.register_function(name, Box::new(CustomFunction::new(signature, Box::new(function))));
    };
    register("abs", ArgumentType::Number, |args, _| Ok(abs(&args[0])));
    register("ceil", ArgumentType::Number, |args, _| Ok(round_with(&args[0], f64::ceil)));
    register("floor", ArgumentType::Number, |args, _| Ok(round_with(&args[0], f64::floor)));
    register("sum", number_array(), |args, _| Ok(sum(&args[0])));
    register("avg", number_array(), |args, _| Ok(average(&args[0])));
    runtime
}

fn number_array() -> ArgumentType {
    ArgumentType::TypedArray(Box::new(ArgumentType::Number))
}

/// Keeps integers integers.
fn abs(number: &Rcvar) -> Rcvar {
    match as_integer(number) {
        Some(n) => from_integer(n.abs()),
        None => from_float(as_float(number).abs()),
    }
}

/// An integer, if the result fits in 63 bits.
fn round_with(number: &Rcvar, round: fn(f64) -> f64) -> Rcvar {
    if as_integer(number).is_some() {
        return number.clone();
    }
    let rounded = round(as_float(number));
    // Larger floats are integral anyway, and may not fit into an integer.
    if rounded.abs() < 2f64.powi(63) { from_integer(rounded as i128) } else { from_float(rounded) }
}

fn sum(numbers: &Rcvar) -> Rcvar {
    let numbers = numbers.as_array().map(Vec::as_slice).unwrap_or_default();
    match numbers.iter().map(as_integer).sum::<Option<i128>>() {
        Some(sum) => from_integer(sum),
        None => from_float(numbers.iter().map(as_float).sum()),
    }
}

/// A float; null for an empty array.
fn average(numbers: &Rcvar) -> Rcvar {
    let numbers = numbers.as_array().map(Vec::as_slice).unwrap_or_default();
    match numbers.len() {
        0 => Rcvar::new(Variable::Null),
        n => from_float(numbers.iter().map(as_float).sum::<f64>() / n as f64),
    }
}

fn as_integer(number: &Rcvar) -> Option<i128> {
    match &**number {
        Variable::Number(n) => n.as_i64().map(i128::from).or_else(|| n.as_u64().map(i128::from)),
        _ => None,
    }
}

fn as_float(number: &Rcvar) -> f64 {
    number.as_number().unwrap_or_default()
}

fn from_integer(n: i128) -> Rcvar {
    let number = i64::try_from(n).map(Number::from).or_else(|_| u64::try_from(n).map(Number::from));
    number.map_or_else(|_| from_float(n as f64), |number| Rcvar::new(Variable::Number(number)))
}

/// Infinite results, such as the sum of two huge numbers, become null.
fn from_float(n: f64) -> Rcvar {
    Rcvar::new(Number::from_f64(n).map_or(Variable::Null, Variable::Number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(query: &str, value: serde_json::Value, expected: &str) {
        let found = runtime().compile(query).and_then(|query| query.search(value)).expect(query);
        assert_eq!(found.to_string(), expected, "{query}");
    }

    #[test]
    fn whole_numbers_stay_as_integer() {
        check("sum([].nodeCount)", json!([{"nodeCount": 10}, {"nodeCount": 20}]), "30");
        check("sum(@)", json!([]), "0");
        check("sum(@)", json!([1, 0.5]), "1.5");
        check("sum(@)", json!([i64::MAX, i64::MAX]), "18446744073709551614");
        check("abs(@)", json!(-3), "3");
        check("abs(@)", json!(i64::MIN), "9223372036854775808");
        check("abs(@)", json!(-3.5), "3.5");
        check("ceil(@)", json!(1.2), "2");
        check("ceil(@)", json!(7), "7");
        check("floor(@)", json!(-1.2), "-2");
        check("floor(@)", json!(50000.0), "50000");
        check("floor(@)", json!(1e300), "1e+300");
        check("avg(@)", json!([1, 2, 3]), "2.0");
        check("avg(@)", json!([]), "null");
        check("length(@)", json!([1]), "1");
    }

    #[test]
    fn non_numbers_are_rejected() {
        for query in ["abs('x')", "sum('x')", "sum(['x'])", "avg()", "ceil(`null`)"] {
            let runtime = runtime();
            assert!(runtime.compile(query).and_then(|query| query.search(json!({}))).is_err(), "{query}");
        }
    }
}
