//! Converts times of the GPU's clock to the host's clock.
//!
//! A submission's work happens after the host has given it to the driver and before the host sees
//! its end. So each submission bounds the difference of the clocks from both sides, and the
//! narrowest bounds of many submissions are used. Clocks drift: if a submission contradicts the
//! bounds so far, a new window begins, with its own bounds.

/// The longest window in nanoseconds: two quartz clocks part by some microseconds in that time.
const WINDOW: i64 = 1_000_000_000;

/// The time of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// By the host's clock.
    Host(i64),
    /// By the GPU's clock, in nanoseconds, with the window that it belongs to.
    Gpu(i64, usize),
}

/// Bounds of the number to be added to the GPU's nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Window {
    low: i64,
    high: i64,
    /// The beginning of the window, by the GPU's clock.
    began: i64,
}

/// The relation of both clocks.
#[derive(Debug, Default)]
pub(super) struct Clock {
    windows: Vec<Window>,
}

impl Clock {
    /// Learns from a submission. The host gave it to the driver at `submitted` and saw its end at
    /// `done`; `gpu` are its first and last timestamps. Returns its window.
    pub fn observe(&mut self, gpu: [i64; 2], submitted: i64, done: i64) -> usize {
        let [first, last] = gpu;
        let (low, high) = (submitted - first, done - last);
        if let Some(window) = self.windows.last_mut() {
            let both = (window.low.max(low), window.high.min(high));
            if both.0 <= both.1 && first - window.began < WINDOW {
                (window.low, window.high) = both;
                return self.windows.len() - 1;
            }
        }
        self.windows.push(Window { low, high: high.max(low), began: first });
        self.windows.len() - 1
    }

    /// A moment by the host's clock.
    pub fn place(&self, moment: Moment) -> i64 {
        match moment {
            Moment::Host(at) => at,
            Moment::Gpu(at, window) => at + self.windows.get(window).map_or(0, Window::middle),
        }
    }

    /// Half the width of the widest bounds.
    pub fn error(&self) -> Option<i64> {
        self.windows.iter().map(|w| (w.high - w.low + 1) / 2).max()
    }
}

impl Window {
    const fn middle(&self) -> i64 {
        self.low + (self.high - self.low) / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_bounds_of_a_window_serve() {
        let mut clock = Clock::default();
        // The GPU's clock is 1,000 behind.
        assert_eq!(clock.observe([100, 200], 1_050, 1_260), 0);
        assert_eq!(clock.observe([300, 400], 1_290, 1_500), 0);
        assert_eq!(clock.error(), Some(35));
        assert_eq!(clock.place(Moment::Gpu(100, 0)), 1_125);
        assert_eq!(clock.place(Moment::Host(7)), 7);
        for (at, [first, last]) in [(0_i64, [500, 510]), (1, [600, 640])] {
            let window = clock.observe([first, last], first + 999, last + 1_001);
            assert_eq!(window, 0, "{at}");
        }
        assert_eq!((clock.error(), clock.place(Moment::Gpu(500, 0))), (Some(1), 1_500));
    }

    #[test]
    fn a_contradiction_or_a_second_begins_a_window() {
        let mut clock = Clock::default();
        assert_eq!(clock.observe([0, 10], 100, 120), 0);
        assert_eq!(clock.observe([20, 30], 220, 240), 1, "the offset is 200 now, not 100");
        assert_eq!(clock.observe([40, 50], 241, 260), 1);
        assert_eq!(clock.observe([WINDOW + 21, WINDOW + 22], WINDOW + 225, WINDOW + 230), 2);
        assert_eq!(clock.place(Moment::Gpu(0, 0)), 105);
        assert_eq!(Clock::default().error(), None);
    }
}
