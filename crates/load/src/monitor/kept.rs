//! Seconds at rest: the names of their figures stand once, not in each of them, so that an hour-long run costs some hundred bytes a second.

use crate::results::HostSecond;
use std::time::Instant;

/// What was seen of one machine.
#[derive(Debug, Default)]
pub(super) struct Kept {
    names: Vec<String>,
    seconds: Vec<Packed>,
    latest: Option<HostSecond>,
}

#[derive(Debug)]
struct Packed {
    middle: Instant,
    /// Without its figures by name.
    second: HostSecond,
    /// They: a place in the list of names, and a value.
    figures: Box<[(u16, f32)]>,
}

impl Kept {
    /// A second more; `middle` of the interval.
    pub fn push(&mut self, middle: Instant, second: HostSecond) {
        let figures = second.extra.iter().map(|(name, value)| (self.place(name), *value as f32)).collect();
        let mut bare = second.clone();
        bare.extra.clear();
        self.seconds.push(Packed { middle, second: bare, figures });
        self.latest = Some(second);
    }

    fn place(&mut self, name: &str) -> u16 {
        let known = self.names.iter().position(|known| known == name).unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        // More names than threads, interfaces and figures together can be share the last place.
        u16::try_from(known).unwrap_or(u16::MAX)
    }

    /// The last one.
    pub fn latest(&self) -> Option<&HostSecond> {
        self.latest.as_ref()
    }

    /// All of them, as they were, but for digits that nobody reads.
    pub fn unpack(self) -> Vec<(Instant, HostSecond)> {
        let names = self.names;
        let whole = |packed: Packed| {
            let named = |(place, value): &(u16, f32)| {
                names.get(usize::from(*place)).map(|name| (name.clone(), f64::from(*value)))
            };
            let extra = packed.figures.iter().filter_map(named).collect();
            (packed.middle, HostSecond { extra, ..packed.second })
        };
        self.seconds.into_iter().map(whole).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_comes_back() {
        let second = |number: u64, figures: &[(&str, f64)]| HostSecond {
            second: number,
            cpu_percent: 40.0,
            core_percents: vec![10.0; 4],
            extra: figures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            ..HostSecond::default()
        };
        let all =
            [second(0, &[("a", 1.5), ("b", 2.0)]), second(1, &[]), second(2, &[("b", 3.0), ("c", 4e9)])];
        let (mut kept, now) = (Kept::default(), Instant::now());
        all.iter().for_each(|second| kept.push(now, second.clone()));
        assert_eq!(kept.latest(), all.last());
        assert_eq!(kept.unpack().into_iter().map(|(_, second)| second).collect::<Vec<_>>(), all);
    }
}
