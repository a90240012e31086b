//! Models of the device runtime's threads. Each runs under many random schedules from fixed seeds.
//! A deadlock or a failed assertion ends the program with the schedule that led to it, which
//! `shuttle::replay` repeats.

// The modules under test offer more than the models use.
#![allow(dead_code)]

mod device;
#[path = "../../../src/error.rs"]
mod error;
mod pending_model;
mod queue_model;

/// The parts of `src/sys` that the modules under test use.
mod sys {
    pub mod guard {
        use crate::error::{Error, Result};

        pub fn caught<T>(label: &str, body: impl FnOnce() -> Result<T>) -> Result<T> {
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or_else(|payload| {
                let message =
                    payload.downcast_ref::<&str>().copied().unwrap_or("without a message");
                Err(Error::Internal(format!("{label} panicked: {message}")))
            })
        }
    }
}

/// The number of schedules of each model.
const SCHEDULES: usize = 2000;

fn main() {
    let models: [(&str, fn()); 8] = [
        ("batches run in order", queue_model::batches_run_in_order_and_who_waits_finds_them_done),
        (
            "a refused batch fails later read-backs",
            queue_model::a_refused_batch_fails_every_later_read_back,
        ),
        ("who records is held up", queue_model::who_records_is_held_up_and_never_for_ever),
        ("callbacks can do anything but wait", queue_model::callbacks_can_do_anything_but_wait),
        ("nothing overtakes a dispatch", pending_model::nothing_overtakes_a_dispatch_that_waits),
        (
            "what depends on a failure is no data",
            pending_model::what_depends_on_a_failed_dispatch_is_no_data,
        ),
        (
            "a new life begins in order",
            pending_model::a_new_life_begins_behind_the_dispatches_of_the_old,
        ),
        (
            "a refused dispatch is replaced",
            pending_model::a_refused_dispatch_is_replaced_with_all_that_belongs_to_it,
        ),
    ];
    for (name, model) in models {
        let start = std::time::Instant::now();
        shuttle::check_random_with_seed(model, 16, SCHEDULES / 2);
        shuttle::check_pct(model, SCHEDULES / 2, 3);
        println!("{name}: {SCHEDULES} schedules in {:.1?}", start.elapsed());
    }
}
