//! The functions of JMESPath that calculate, as the library of `az` has them: whole numbers stay whole. Entered by
//! `query`. The crate's own calculate in floating point and would print 30.0 for the sum of 10 and 20.

use jmespath::functions::{ArgumentType, CustomFunction, Signature};
use jmespath::{Context, Rcvar, Runtime, SearchResult, Variable};
use serde_json::Number;

type Calculation = fn(&[Rcvar], &mut Context<'_>) -> SearchResult;

/// Everything that JMESPath has, with these in place of the crate's own.
pub fn runtime() -> Runtime {
    let mut runtime = Runtime::new();
    runtime.register_builtin_functions();
    let mut register = |name: &str, input: ArgumentType, calculation: Calculation| {
        let signature = Signature::new(vec![input], None);
        runtime.register_function(name, Box::new(CustomFunction::new(signature, Box::new(calculation))));
    };
    register("abs", ArgumentType::Number, |args, _| Ok(abs(&args[0])));
    register("ceil", ArgumentType::Number, |args, _| Ok(rounded(&args[0], f64::ceil)));
    register("floor", ArgumentType::Number, |args, _| Ok(rounded(&args[0], f64::floor)));
    register("sum", numbers(), |args, _| Ok(sum(&args[0])));
    register("avg", numbers(), |args, _| Ok(average(&args[0])));
    runtime
}

fn numbers() -> ArgumentType {
    ArgumentType::TypedArray(Box::new(ArgumentType::Number))
}

/// Of the kind it was.
fn abs(number: &Rcvar) -> Rcvar {
    match whole(number) {
        Some(n) => of_whole(n.abs()),
        None => of_float(float(number).abs()),
    }
}

/// Always whole, as far as whole numbers reach.
fn rounded(number: &Rcvar, round: fn(f64) -> f64) -> Rcvar {
    if whole(number).is_some() {
        return number.clone();
    }
    let rounded = round(float(number));
    // Beyond this a float is whole anyway, and may not fit.
    if rounded.abs() < 2f64.powi(63) { of_whole(rounded as i128) } else { of_float(rounded) }
}

fn sum(numbers: &Rcvar) -> Rcvar {
    let numbers = numbers.as_array().map(Vec::as_slice).unwrap_or_default();
    match numbers.iter().map(whole).sum::<Option<i128>>() {
        Some(sum) => of_whole(sum),
        None => of_float(numbers.iter().map(float).sum()),
    }
}

/// Always a float; of nothing there is none.
fn average(numbers: &Rcvar) -> Rcvar {
    let numbers = numbers.as_array().map(Vec::as_slice).unwrap_or_default();
    match numbers.len() {
        0 => Rcvar::new(Variable::Null),
        n => of_float(numbers.iter().map(float).sum::<f64>() / n as f64),
    }
}

fn whole(number: &Rcvar) -> Option<i128> {
    match &**number {
        Variable::Number(n) => n.as_i64().map(i128::from).or_else(|| n.as_u64().map(i128::from)),
        _ => None,
    }
}

fn float(number: &Rcvar) -> f64 {
    number.as_number().unwrap_or_default()
}

fn of_whole(n: i128) -> Rcvar {
    let number = i64::try_from(n).map(Number::from).or_else(|_| u64::try_from(n).map(Number::from));
    number.map_or_else(|_| of_float(n as f64), |number| Rcvar::new(Variable::Number(number)))
}

/// What is no number, as the sum of two enormous ones, is nothing.
fn of_float(n: f64) -> Rcvar {
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
    fn whole_numbers_stay_whole() {
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
    fn what_is_no_number_is_refused() {
        for query in ["abs('x')", "sum('x')", "sum(['x'])", "avg()", "ceil(`null`)"] {
            let runtime = runtime();
            assert!(runtime.compile(query).and_then(|query| query.search(json!({}))).is_err(), "{query}");
        }
    }
}
