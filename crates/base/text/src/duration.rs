//! Durations on the command line: `250us`, `10ms`, `1.5s`, `2m`; a bare number is seconds.

/// Error: the text is not a duration; it says why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a duration: give for example 250us, 10ms, 1.5s or 2m")]
pub struct DurationError(String);

/// Parses a duration such as `10ms`. Returns it in nanoseconds.
///
/// # Errors
/// The text is not a non-negative number, alone or with one of the units `ns`, `us`, `ms`, `s`,
/// `m`.
pub fn parse_ns(text: &str) -> Result<u64, DurationError> {
    let wrong = || DurationError(text.to_owned());
    let split = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "" | "s" => 1e9,
        "m" => 60e9,
        _ => return Err(wrong()),
    };
    let value: f64 = number.parse().map_err(|_| wrong())?;
    if !(0.0..=1e9).contains(&value) {
        return Err(wrong());
    }
    Ok((value * scale) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_scale_and_bare_numbers_are_seconds() {
        assert_eq!(parse_ns("250us"), Ok(250_000));
        assert_eq!(parse_ns("1.5s"), Ok(1_500_000_000));
        assert_eq!(parse_ns("2"), Ok(2_000_000_000));
        assert_eq!(parse_ns("2m"), Ok(120_000_000_000));
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for text in ["", "ten", "-1s", "5h", "NaN", "1e300s"] {
            assert!(
                parse_ns(text).is_err_and(|e| e.to_string().contains("10ms")),
                "{text}"
            );
        }
    }
}
