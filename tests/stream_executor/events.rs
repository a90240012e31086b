//! Events, callbacks, timers and threads.

use super::*;

#[test]
fn events_complete_while_others_record() {
    let (d, _guard) = shared();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (stream, memory) = (d.stream(), d.allocate(1 << 16).unwrap());
            let mut byte = 0u8;
            while !stop.load(Ordering::Relaxed) {
                stream.memset(memory.address, byte, 1 << 16);
                byte = byte.wrapping_add(1);
                if byte.is_multiple_of(64) {
                    stream.block();
                }
            }
        });
        let (stream, memory) = (d.stream(), d.allocate(4096).unwrap());
        let event = d.event();
        assert!(event.is_complete(), "an event that was never recorded");
        for round in 0..30u8 {
            stream.memset(memory.address, round, 4096);
            let mut got = vec![0; 4096];
            stream.read_into(&mut got, memory.address);
            stream.record(&event);
            let polls = std::thread::scope(|inner| {
                let poller = inner.spawn(|| {
                    let mut polls = 0u64;
                    while !event.is_complete() {
                        polls += 1;
                        std::thread::yield_now();
                    }
                    polls
                });
                poller.join().unwrap()
            });
            assert!(got.iter().all(|&x| x == round), "round {round} after {polls} polls");
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn an_event_behind_uploads_alone_needs_no_polling() {
    let (d, _guard) = shared();
    let (up, other, memory) = (d.stream(), d.stream(), d.allocate(4096).unwrap());
    let event = d.event();
    up.write(memory.address, &pattern(4096));
    up.record(&event);
    assert!(event.is_complete(), "the source is free again");
    event.block();
    other.wait_for(&event);
    let mut got = vec![0; 4096];
    other.read_into(&mut got, memory.address);
    other.block();
    assert_eq!(got, pattern(4096));
    // Behind other work, an event reports when that work is done.
    let mut got = vec![0; 4096];
    up.read_into(&mut got, memory.address);
    up.write(memory.address, &[0; 4]);
    up.record(&event);
    while !event.is_complete() {
        std::thread::yield_now();
    }
    assert_eq!(got, pattern(4096));
}

#[test]
fn host_callbacks_run_in_order_and_report_their_status() {
    let (d, _guard) = alone();
    let (stream, memory) = (d.stream(), d.allocate(1 << 20).unwrap());
    let count = AtomicU64::new(0);
    let argument = (&raw const count).cast_mut().cast::<c_void>();
    for round in 1..=20 {
        stream.memset(memory.address, round as u8, 1 << 20);
        // SAFETY: the counter lives until `block` returns.
        assert_eq!(
            unsafe { d.se().host_callback.unwrap()(d.raw, stream.raw, Some(note), argument) },
            1
        );
        let event = d.event();
        stream.record(&event);
        event.block();
        assert_eq!(count.load(Ordering::SeqCst), round, "the callback ran in front of the event");
    }
    // SAFETY: no argument is needed; a missing callback is refused.
    unsafe {
        assert_eq!(d.se().host_callback.unwrap()(d.raw, stream.raw, None, null_mut()), 0);
        assert_eq!(d.se().host_callback.unwrap()(d.raw, stream.raw, Some(refuse), null_mut()), 1);
    }
    // SAFETY: the stream is alive.
    let status = || {
        d.plugin.status(|s| unsafe { d.se().block_host_until_done.unwrap()(d.raw, stream.raw, s) })
    };
    let (code, message) = status();
    assert_eq!(code, FAILED_PRECONDITION);
    assert!(message.contains("the callback refuses"), "{message}");
    assert_eq!(status(), (0, String::new()), "reported once");
    // SAFETY: the stream is alive.
    d.plugin.ok(|s| unsafe { d.se().get_stream_status.unwrap()(d.raw, stream.raw, s) });
}

#[test]
fn timers_measure_work() {
    let (d, _guard) = shared();
    let (stream, memory) = (d.stream(), d.allocate(16 << 20).unwrap());
    stream.memset(memory.address, 1, 16 << 20);
    let mut timer = null_mut();
    let p = d.plugin;
    // SAFETY: timer and stream are alive until the end.
    unsafe {
        p.ok(|s| d.se().create_timer.unwrap()(d.raw, &raw mut timer, s));
        for _ in 0..2 {
            p.ok(|s| d.se().start_timer.unwrap()(d.raw, stream.raw, timer, s));
            for i in 0..4 {
                stream.memset(memory.address, i, 16 << 20);
            }
            p.ok(|s| d.se().stop_timer.unwrap()(d.raw, stream.raw, timer, s));
            let t = p.timer_fns.nanoseconds.unwrap()(timer);
            assert!(t > 1_000 && t < 60_000_000_000, "{t} ns for 64 MiB");
        }
        d.se().destroy_timer.unwrap()(d.raw, timer);
        p.platform_fns.destroy_timer_fns.unwrap()(
            &raw const p.platform,
            (&raw const p.timer_fns).cast_mut(),
        );
    }
}

#[test]
fn threads_with_streams_of_their_own() {
    let (d, _guard) = shared();
    std::thread::scope(|scope| {
        for t in 0..8u32 {
            scope.spawn(move || {
                let (stream, event) = (d.stream(), d.event());
                for round in 0..15u32 {
                    let memory = d.allocate(4096 + u64::from(round) * 512).unwrap();
                    let value = t * 1000 + round;
                    stream.memset32(memory.address, value, 4096);
                    stream.copy(memory.address + 2048, memory.address, 1024);
                    let mut got = vec![0; 4];
                    stream.read_into(&mut got, memory.address + 2048);
                    stream.record(&event);
                    if round % 2 == 0 {
                        event.block();
                    } else {
                        while !event.is_complete() {
                            std::thread::yield_now();
                        }
                    }
                    assert_eq!(got, value.to_le_bytes(), "thread {t} round {round}");
                }
            });
        }
    });
    d.synchronize();
}
