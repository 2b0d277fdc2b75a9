//! Impairments of links, each direction by itself.

use serde::{Deserialize, Serialize};

use super::{Link, PerDirection, Rate, Share, Span};

/// Impairments of one direction of a link, applied after the link's own rate limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Impairment {
    /// Time by which each frame is delayed; `None` for no delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Span>,
    /// Largest random deviation from `delay`; `None` for no deviation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Span>,
    /// Share of frames that are dropped; `None` to drop no frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Share>,
    /// Share of frames that are delivered twice; `None` for no frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicate: Option<Share>,
    /// Share of frames that overtake earlier ones; `None` for no frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reorder: Option<Share>,
    /// Share of frames in which one bit is flipped; `None` for no frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrupt: Option<Share>,
    /// Largest rate that passes, if the link's own rate is higher; `None` for the link's own rate.
    /// Frames above it wait in the queue of the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
}

/// The impairments of the two directions of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkImpairment {
    /// Impairment of frames from the first end to the second; `None` if that direction is not
    /// impaired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub there: Option<Impairment>,
    /// Impairment of frames from the second end to the first; `None` if that direction is not
    /// impaired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back: Option<Impairment>,
}

/// Why no link can have an impairment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImpairmentError {
    /// The delay or the jitter is too long.
    #[error("{what} is {span}; must be at most {DELAY_MAX_S}s")]
    Long {
        /// The word of the impairment.
        what: &'static str,
        /// The delay or jitter that is too long.
        span: Span,
    },
    /// The jitter exceeds the delay.
    #[error("jitter is {jitter}; must be at most the delay, which is {delay}")]
    Jitter {
        /// The jitter, which is longer than the delay.
        jitter: Span,
        /// The delay of the same impairment.
        delay: Span,
    },
    /// Frames cannot overtake others if none is delayed.
    #[error("reorder is {0}, but there is no delay: only delayed frames can be overtaken")]
    Reorder(Share),
}

/// The longest delay of an impairment, in seconds.
pub const DELAY_MAX_S: u64 = 60;

impl Impairment {
    /// Checks that a link can have this impairment.
    ///
    /// # Errors
    /// The first value that is impossible.
    pub fn check(&self) -> Result<(), ImpairmentError> {
        let most = carina_time::Duration::from_secs(DELAY_MAX_S);
        for (what, span) in [("delay", self.delay), ("jitter", self.jitter)] {
            if let Some(span) = span.filter(|span| span.duration() > most) {
                return Err(ImpairmentError::Long { what, span });
            }
        }
        let delay = self.delay.unwrap_or(Span::ZERO);
        if let Some(jitter) = self.jitter.filter(|jitter| *jitter > delay) {
            return Err(ImpairmentError::Jitter { jitter, delay });
        }
        match self.reorder {
            Some(share) if share != Share::ZERO && delay == Span::ZERO => {
                Err(ImpairmentError::Reorder(share))
            }
            _ => Ok(()),
        }
    }

    /// Overrides `base` with this impairment: each value that is not set here is taken from `base`.
    #[must_use]
    pub fn over(self, base: Impairment) -> Impairment {
        Impairment {
            delay: self.delay.or(base.delay),
            jitter: self.jitter.or(base.jitter),
            loss: self.loss.or(base.loss),
            duplicate: self.duplicate.or(base.duplicate),
            reorder: self.reorder.or(base.reorder),
            corrupt: self.corrupt.or(base.corrupt),
            rate: self.rate.or(base.rate),
        }
    }

    /// The values of this impairment that differ from the values of `base`.
    fn beyond(self, base: Impairment) -> Impairment {
        fn differs<T: PartialEq>(value: Option<T>, base: Option<T>) -> Option<T> {
            if value == base { None } else { value }
        }
        Impairment {
            delay: differs(self.delay, base.delay),
            jitter: differs(self.jitter, base.jitter),
            loss: differs(self.loss, base.loss),
            duplicate: differs(self.duplicate, base.duplicate),
            reorder: differs(self.reorder, base.reorder),
            corrupt: differs(self.corrupt, base.corrupt),
            rate: differs(self.rate, base.rate),
        }
    }

    /// This impairment if it sets any value.
    fn unless_empty(self) -> Option<Impairment> {
        (self != Impairment::default()).then_some(self)
    }
}

impl std::fmt::Display for Impairment {
    /// Writes the impairment as a user types it: `delay=20ms loss=1%`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = [
            ("delay", self.delay.map(|delay| delay.to_string())),
            ("jitter", self.jitter.map(|jitter| jitter.to_string())),
            ("loss", self.loss.map(|loss| loss.to_string())),
            (
                "duplicate",
                self.duplicate.map(|duplicate| duplicate.to_string()),
            ),
            ("reorder", self.reorder.map(|reorder| reorder.to_string())),
            ("corrupt", self.corrupt.map(|corrupt| corrupt.to_string())),
            ("rate", self.rate.map(|rate| rate.to_string())),
        ];
        let set = all
            .into_iter()
            .filter_map(|(word, value)| Some(format!("{word}={}", value?)));
        f.write_str(&set.collect::<Vec<_>>().join(" "))
    }
}

impl LinkImpairment {
    /// Whether neither direction is impaired.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.there.is_none() && self.back.is_none()
    }

    /// The impairment of frames that end `side` (0 or 1) sends; `None` if these frames are not
    /// impaired.
    #[must_use]
    pub fn of_side(&self, side: usize) -> Option<Impairment> {
        [self.there, self.back].into_iter().nth(side).flatten()
    }

    /// The impairments for the host of end `side` alone, as seen from that end: the impairments of
    /// the frames that the end sends. The host of the other end impairs the other direction.
    #[must_use]
    pub fn at_end(&self, side: usize) -> LinkImpairment {
        LinkImpairment {
            there: self.of_side(side),
            back: None,
        }
    }

    /// These impairments on top of `base`, each direction and each value by itself.
    #[must_use]
    pub fn over(&self, base: &LinkImpairment) -> LinkImpairment {
        self.with(base, Impairment::over)
    }

    /// Returns the impairments to add on a link that has the impairments `base` already, so that
    /// the link has these impairments in total. A value that is not set here remains that of
    /// `base`.
    #[must_use]
    pub fn beyond(&self, base: &LinkImpairment) -> LinkImpairment {
        self.with(base, Impairment::beyond)
    }

    fn with(
        &self,
        base: &LinkImpairment,
        join: fn(Impairment, Impairment) -> Impairment,
    ) -> LinkImpairment {
        let [there, back] = [0, 1].map(|side| {
            let own = self.of_side(side).unwrap_or_default();
            join(own, base.of_side(side).unwrap_or_default()).unless_empty()
        });
        LinkImpairment { there, back }
    }

    /// Checks that a link can have these impairments.
    ///
    /// # Errors
    /// The first value that is impossible.
    pub fn check(&self) -> Result<(), ImpairmentError> {
        let mut sides = [self.there, self.back].into_iter().flatten();
        sides.try_for_each(|side| side.check())
    }
}

impl std::fmt::Display for LinkImpairment {
    /// Writes `delay=20ms` if both directions have the same impairment, else
    /// `delay=20ms from its first end, none from its second`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words =
            |side: Option<Impairment>| side.map_or("none".to_owned(), |side| side.to_string());
        if self.there == self.back {
            f.write_str(&words(self.there))
        } else {
            let (first, second) = (words(self.there), words(self.back));
            write!(f, "{first} from its first end, {second} from its second")
        }
    }
}

impl Link {
    /// The impairments that the document gives the two directions of the link. A value of 0 is
    /// none.
    #[must_use]
    pub fn impairment(&self) -> LinkImpairment {
        let [there, back] = [0, 1].map(|side| {
            let impairment = Impairment {
                delay: of_side(self.delay, side).filter(|candidate| *candidate != Span::ZERO),
                jitter: of_side(self.jitter, side).filter(|candidate| *candidate != Span::ZERO),
                loss: of_side(self.loss, side).filter(|candidate| *candidate != Share::ZERO),
                duplicate: of_side(self.duplicate, side)
                    .filter(|candidate| *candidate != Share::ZERO),
                reorder: of_side(self.reorder, side).filter(|candidate| *candidate != Share::ZERO),
                corrupt: of_side(self.corrupt, side).filter(|candidate| *candidate != Share::ZERO),
                rate: None,
            };
            impairment.unless_empty()
        });
        LinkImpairment { there, back }
    }

    /// Gives the link these impairments, without their `rate`.
    pub fn set_impairment(&mut self, both: &LinkImpairment) {
        let sides = [0, 1].map(|side| both.of_side(side).unwrap_or_default());
        self.delay = pair(sides.map(|side| side.delay), Span::ZERO);
        self.jitter = pair(sides.map(|side| side.jitter), Span::ZERO);
        self.loss = pair(sides.map(|side| side.loss), Share::ZERO);
        self.duplicate = pair(sides.map(|side| side.duplicate), Share::ZERO);
        self.reorder = pair(sides.map(|side| side.reorder), Share::ZERO);
        self.corrupt = pair(sides.map(|side| side.corrupt), Share::ZERO);
    }
}

fn of_side<T: Copy>(setting: Option<PerDirection<T>>, side: usize) -> Option<T> {
    setting.map(|setting| setting.sides()[side])
}

/// The setting of both directions; `None` if neither has one.
fn pair<T: Copy>([first, second]: [Option<T>; 2], zero: T) -> Option<PerDirection<T>> {
    first.or(second)?;
    Some(PerDirection {
        from_first: first.unwrap_or(zero),
        from_second: second.unwrap_or(zero),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn late(delay: &str) -> Impairment {
        Impairment {
            delay: delay.parse().ok(),
            ..Impairment::default()
        }
    }

    fn both(one: Impairment) -> LinkImpairment {
        LinkImpairment {
            there: Some(one),
            back: Some(one),
        }
    }

    #[test]
    fn what_is_beyond_a_base_gives_the_whole_on_top_of_it() {
        let base = both(late("10ms"));
        let lossy = Impairment {
            loss: "1%".parse().ok(),
            ..late("10ms")
        };
        let wanted = LinkImpairment {
            there: Some(lossy),
            back: Some(late("30ms")),
        };
        let beyond = wanted.beyond(&base);
        assert_eq!(
            beyond.to_string(),
            "loss=1% from its first end, delay=30ms from its second",
            "{beyond:?}"
        );
        assert_eq!(beyond.over(&base), wanted);
        assert!(LinkImpairment::default().beyond(&base).is_none());
        assert_eq!(LinkImpairment::default().over(&base), base);
        let none = both(late("0s"));
        assert_eq!(none.beyond(&base).over(&base), none);
    }

    #[test]
    fn link_gets_back_the_impairments_that_it_was_given() {
        let ends = ["a", "b"].map(|node| super::super::End::from(node.to_owned()));
        let mut link = Link::new(ends, "1Mbps".parse().unwrap());
        assert!(link.impairment().is_none());
        let one_way = LinkImpairment {
            there: Some(Impairment {
                corrupt: "1%".parse().ok(),
                ..late("10ms")
            }),
            back: None,
        };
        link.set_impairment(&one_way);
        assert_eq!(link.impairment(), one_way);
        assert_eq!(one_way.at_end(0), one_way);
        assert!(one_way.at_end(1).is_none());
        link.set_impairment(&LinkImpairment::default());
        assert_eq!(link.delay, None);
    }

    #[test]
    fn impossible_impairments_are_named() {
        let jitter = Impairment {
            jitter: "5ms".parse().ok(),
            ..late("1ms")
        };
        let reorder = Impairment {
            reorder: "1%".parse().ok(),
            ..Impairment::default()
        };
        for (impairment, words) in [
            (late("61s"), "delay is 61s; must be at most 60s"),
            (jitter, "jitter is 5ms; must be at most the delay"),
            (reorder, "no delay"),
        ] {
            let error = both(impairment).check().unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        assert_eq!(both(late("60s")).check(), Ok(()));
    }
}
