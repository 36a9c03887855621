//! The bounds of a type: the range of a whole number, the digits of a decimal, the length of a text.

use crate::{Invalid, Type, ValueRef};

/// Checks that a value is within the bounds of a type. A value of another kind is not checked.
pub fn check_bounds(ty: Type, value: ValueRef<'_>) -> Result<(), Invalid> {
    match (ty, value) {
        (Type::Smallint | Type::Integer, ValueRef::Bigint(number)) => {
            let (min, max) = ty.range().expect("a type of whole numbers");
            match (min..=max).contains(&number) {
                true => Ok(()),
                false => Err(Invalid::beyond(format!("a whole number from {min} to {max}"))),
            }
        }
        (Type::Decimal { precision, scale }, ValueRef::Numeric(text))
            if !has_digits(text, precision.into(), scale.into()) =>
        {
            let whole = precision - scale;
            let what =
                format!("a decimal number of at most {whole} digits before the point and {scale} after it");
            Err(Invalid::beyond(what))
        }
        (Type::Text { max_chars: Some(max) }, ValueRef::Text(text))
            if text.len() > max as usize && text.chars().count() > max as usize =>
        {
            Err(Invalid::beyond(format!("a text of at most {max} characters")))
        }
        _ => Ok(()),
    }
}

/// Whether a decimal needs at most `precision - scale` digits before the point and `scale` after it. Leading
/// and trailing zeros do not count.
fn has_digits(text: &str, precision: i64, scale: i64) -> bool {
    let text = text.trim_start_matches('-');
    // PostgreSQL's numeric(p,s) holds NaN, and no infinity.
    if !text.starts_with(|first: char| first.is_ascii_digit()) {
        return text == "NaN";
    }
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = || whole.bytes().chain(fraction.bytes()).enumerate().filter(|(_, digit)| *digit != b'0');
    let (Some((first, _)), Some((last, _))) = (digits().next(), digits().last()) else { return true };
    // An exponent that does not fit into 32 bits moves the point beyond every bound.
    let Ok(exponent) = exponent.parse::<i32>() else { return false };
    let point = whole.len() as i64 + i64::from(exponent);
    point - first as i64 <= precision - scale && last as i64 + 1 - point <= scale
}

#[cfg(test)]
mod tests {
    use crate::{Type, from_json};

    /// Reads a JSON value as a type; an error states what the value must be.
    fn check(ty: &str, json: &str, expected: Result<(), &str>) {
        let got = from_json(Type::parse(ty).expect("a type"), json).map(drop).map_err(|e| e.to_string());
        assert_eq!(got, expected.map_err(str::to_owned), "{ty} from {json}");
    }

    #[test]
    fn whole_numbers_have_the_range_of_their_type() {
        let small = Err("must be a whole number from -32768 to 32767");
        let middle = Err("must be a whole number from -2147483648 to 2147483647");
        for (ty, json, expected) in [
            ("smallint", "32767", Ok(())),
            ("int2", "-32768", Ok(())),
            ("smallint", "32768", small),
            ("int2", "\"-32769\"", small),
            ("integer", "2147483647", Ok(())),
            ("int4", "-2147483649", middle),
            ("int", "2147483648", middle),
            ("integer", "9223372036854775808", middle),
            ("smallint", "1.5", small),
            ("int8", "9223372036854775807", Ok(())),
        ] {
            check(ty, json, expected);
        }
    }

    #[test]
    fn decimals_have_the_digits_of_their_type() {
        let few = Err("must be a decimal number of at most 3 digits before the point and 2 after it");
        for (json, expected) in [
            ("999.99", Ok(())),
            ("-999.99", Ok(())),
            ("\"000999.9900\"", Ok(())),
            ("0", Ok(())),
            ("-0.00", Ok(())),
            ("0.01", Ok(())),
            ("9.9999e2", Ok(())),
            ("1e2", Ok(())),
            ("100e-4", Ok(())),
            ("0e99999999999", Ok(())),
            ("1000", few),
            ("1e3", few),
            ("0.001", few),
            ("99999e-3", few),
            ("1e99999999999", few),
            ("\"1.\"", Err("must be a decimal number")),
        ] {
            check("decimal(5,2)", json, expected);
            check("numeric(5, 2)", json, expected);
        }
        check("numeric(3)", "999", Ok(()));
        check(
            "numeric(3)",
            "0.5",
            Err("must be a decimal number of at most 3 digits before the point and 0 after it"),
        );
    }

    #[test]
    fn types_read_back_as_they_are_written() {
        let words = Type::NAMES.iter().copied().chain(Type::SQL_NAMES.iter().map(|(sql, _)| *sql));
        for word in words.chain(["varchar(9)"]) {
            let ty = Type::parse(&word.replace("(n)", "(12)").replace("(p,s)", "(10,2)")).expect(word);
            assert_eq!(Type::parse(&ty.to_string()), Some(ty), "{word}");
        }
        for word in
            ["date", "numeric(0)", "numeric(2,3)", "numeric(1001)", "bigint(3)", "text(", "text(x)", "uuid()"]
        {
            assert_eq!(Type::parse(word), None, "{word}");
        }
    }
}
