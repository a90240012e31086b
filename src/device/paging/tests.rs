use std::collections::BTreeMap;
use std::sync::Arc;

use super::pager::size_class;
use super::{Access, Link, Mover, PagedTensor, Pager, Paging, problem, wanted};
use crate::error::{Error, Result};

const PAGE: u64 = 4096;

/// Buffers by number. A copy between them runs at once.
#[derive(Default)]
struct Model {
    buffers: BTreeMap<u32, Vec<u8>>,
    next: u32,
    /// Bytes of frames that were made and not given back.
    device: u64,
    paged_out: u64,
    paged_in: u64,
    /// The bytes of frames that the driver has; None if they are not limited.
    driver: Option<u64>,
}

impl Model {
    fn buffer(&mut self, bytes: u64) -> u32 {
        self.next += 1;
        self.buffers.insert(self.next, vec![0xee; bytes as usize]);
        self.next
    }

    fn copy(&mut self, from: u32, to: u32, bytes: u64) {
        let moved = self.buffers[&from][..bytes as usize].to_vec();
        self.buffers.get_mut(&to).unwrap()[..bytes as usize].copy_from_slice(&moved);
    }
}

impl Mover for Model {
    type Frame = u32;
    type Host = u32;

    fn frame(&mut self, _number: u32, bytes: u64) -> Result<u32> {
        if self.driver.is_some_and(|most| self.device + bytes > most) {
            return Err(Error::ResourceExhausted("the driver refuses".into()));
        }
        self.device += bytes;
        Ok(self.buffer(bytes))
    }

    fn host(&mut self, bytes: u64) -> Result<u32> {
        Ok(self.buffer(bytes))
    }

    fn page_out(&mut self, from: &u32, to: &u32, bytes: u64) {
        self.paged_out += bytes;
        self.copy(*from, *to, bytes);
    }

    fn page_in(&mut self, from: &u32, to: &u32, bytes: u64) {
        self.paged_in += bytes;
        self.copy(*from, *to, bytes);
    }

    fn release(&mut self, frame: u32, bytes: u64) {
        self.device -= bytes;
        assert_eq!(self.buffers.remove(&frame).map(|b| b.len() as u64), Some(bytes));
    }
}

struct Bench {
    link: Arc<Link>,
    pager: Pager<Model>,
    model: Model,
}

impl Bench {
    fn new(device: u64, host: u64) -> Self {
        let link = Link::new(Paging { device, host });
        Self { pager: Pager::new(link.clone()), link, model: Model::default() }
    }

    fn tensor(&self) -> PagedTensor {
        PagedTensor::new(&self.link)
    }

    fn place(&mut self, accesses: &[Access]) -> Result<Vec<u32>> {
        self.pager.place(accesses, &mut self.model).map(|frames| frames.to_vec())
    }

    fn write(&mut self, tensor: &PagedTensor, bytes: u64, value: u8) {
        let frame = self.place(&[access(tensor, bytes, true)]).unwrap()[0];
        self.model.buffers.get_mut(&frame).unwrap()[..bytes as usize].fill(value);
    }

    fn reads(&mut self, tensor: &PagedTensor, bytes: u64, value: u8) {
        let frame = self.place(&[access(tensor, bytes, false)]).unwrap()[0];
        assert!(self.model.buffers[&frame][..bytes as usize].iter().all(|b| *b == value));
    }
}

fn access(tensor: &PagedTensor, bytes: u64, writes: bool) -> Access {
    Access { key: tensor.key, bytes, writes, replaces: false }
}

#[test]
fn the_least_recently_used_goes_and_comes_back_with_its_bytes() {
    // Eight pages, of which frames take seven.
    let mut bench = Bench::new(8 * PAGE, 1 << 30);
    let tensors: Vec<_> = (0..8).map(|_| bench.tensor()).collect();
    for (k, tensor) in tensors.iter().enumerate() {
        bench.write(tensor, PAGE, k as u8);
    }
    assert_eq!((bench.model.paged_out, bench.model.paged_in), (PAGE, 0));
    assert!(
        bench.pager.away(tensors[0].key).is_some() && bench.pager.away(tensors[1].key).is_none()
    );
    assert_eq!((bench.link.in_use(), bench.pager.bytes_away()), (7 * PAGE, PAGE));
    bench.reads(&tensors[0], PAGE, 0);
    assert!(bench.pager.away(tensors[1].key).is_some());
    assert_eq!((bench.model.paged_out, bench.model.paged_in), (2 * PAGE, PAGE));
}

#[test]
fn a_tensor_that_was_not_written_since_leaves_without_a_copy() {
    let mut bench = Bench::new(8 * PAGE, 1 << 30);
    let tensors: Vec<_> = (0..10).map(|_| bench.tensor()).collect();
    tensors.iter().for_each(|tensor| bench.write(tensor, PAGE, 7));
    for _ in 0..3 {
        tensors.iter().for_each(|tensor| bench.reads(tensor, PAGE, 7));
    }
    assert_eq!(bench.model.paged_out, 10 * PAGE, "each tensor leaves with a copy once");
    bench.write(&tensors[0], PAGE, 8);
    tensors[1..].iter().for_each(|tensor| bench.reads(tensor, PAGE, 7));
    assert_eq!(bench.model.paged_out, 11 * PAGE);
    bench.reads(&tensors[0], PAGE, 8);
}

#[test]
fn a_freed_tensor_leaves_without_a_copy_and_its_frame_serves_the_next() {
    let mut bench = Bench::new(8 * PAGE, 1 << 30);
    for k in 0..50 {
        let tensor = bench.tensor();
        bench.write(&tensor, PAGE, k);
    }
    assert_eq!((bench.model.paged_out, bench.model.next), (0, 1));
    assert_eq!((bench.link.in_use(), bench.pager.bytes_away()), (PAGE, 0));
}

#[test]
fn a_tensor_that_is_replaced_is_not_read_back() {
    let mut bench = Bench::new(2 * PAGE, 1 << 30);
    let [a, b] = [bench.tensor(), bench.tensor()];
    bench.write(&a, PAGE, 1);
    bench.write(&b, PAGE, 2);
    let whole = Access { replaces: true, ..access(&a, PAGE, true) };
    bench.place(&[whole]).unwrap();
    assert_eq!(bench.model.paged_in, 0);
}

#[test]
fn a_command_whose_tensors_do_not_fit_fails_and_harms_nothing() {
    let mut bench = Bench::new(4 * PAGE, 1 << 30);
    let tensors: Vec<_> = (0..5).map(|_| bench.tensor()).collect();
    for (k, tensor) in tensors.iter().enumerate() {
        bench.write(tensor, PAGE, k as u8);
    }
    let all: Vec<_> = tensors.iter().map(|t| access(t, PAGE, true)).collect();
    let Err(Error::ResourceExhausted(why)) = bench.place(&all) else { panic!("it fits") };
    assert!(why.contains(&format!("{} bytes of large tensors at once", 5 * PAGE)), "{why}");
    for (k, tensor) in tensors.iter().enumerate() {
        bench.reads(tensor, PAGE, k as u8);
    }
    assert!(bench.place(&all[..4]).is_ok(), "the last eighth is for one command alone");
}

#[test]
fn a_driver_with_less_memory_than_it_said_gets_what_it_can_hold() {
    let mut bench = Bench::new(1 << 30, 1 << 30);
    bench.model.driver = Some(3 * PAGE);
    let tensors: Vec<_> = (0..6).map(|_| bench.tensor()).collect();
    for (k, tensor) in tensors.iter().enumerate() {
        bench.write(tensor, PAGE, k as u8);
    }
    for (k, tensor) in tensors.iter().enumerate() {
        bench.reads(tensor, PAGE, k as u8);
    }
}

#[test]
fn copies_of_tensors_in_device_memory_make_room_in_host_memory() {
    let mut bench = Bench::new(8 * PAGE, 5 * PAGE);
    let tensors: Vec<_> = (0..12).map(|_| bench.tensor()).collect();
    for (k, tensor) in tensors.iter().enumerate() {
        bench.write(tensor, PAGE, k as u8);
    }
    for (k, tensor) in tensors.iter().enumerate().cycle().take(40) {
        bench.reads(tensor, PAGE, k as u8);
    }
    // Without the limit there would be 12.
    let hosts = bench.model.next as u64 - bench.model.device / PAGE;
    assert!(bench.pager.bytes_away() == 5 * PAGE && hosts > 5, "{hosts} were made");
}

/// Random commands on tensors of many sizes have the results that plain arrays have.
#[test]
fn bytes_are_those_of_memory_without_a_limit() {
    let mut state = 1_u64;
    let mut random = move |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (state >> 33) % n
    };
    let sizes = [PAGE, PAGE, 3 * PAGE, 2 * PAGE + 256, 5 * PAGE, 256];
    for round in 0..30 {
        let limit = (16 + random(30)) * PAGE;
        let mut bench = Bench::new(limit, random(60) * PAGE);
        let mut plain: Vec<(PagedTensor, Vec<u8>)> = Vec::new();
        for step in 0..400 {
            match random(10) {
                0 | 1 if plain.len() < 40 => {
                    let bytes = sizes[random(sizes.len() as u64) as usize];
                    // Its contents are unknown until it is written.
                    let value = random(256) as u8;
                    let tensor = bench.tensor();
                    bench.write(&tensor, bytes, value);
                    plain.push((tensor, vec![value; bytes as usize]));
                }
                2 if !plain.is_empty() => {
                    plain.swap_remove(random(plain.len() as u64) as usize);
                }
                3 => bench.pager.release_idle(&mut bench.model),
                4 if !plain.is_empty() => {
                    let (tensor, bytes) = &plain[random(plain.len() as u64) as usize];
                    if let Some(host) = bench.pager.away(tensor.key) {
                        assert_eq!(bench.model.buffers[&host][..bytes.len()], bytes[..]);
                    }
                }
                _ if !plain.is_empty() => {
                    // The last tensor gets the sum of the others, as in a dispatch.
                    let count = 1 + random(3);
                    let chosen: Vec<usize> =
                        (0..count).map(|_| random(plain.len() as u64) as usize).collect();
                    let target = chosen[chosen.len() - 1];
                    let accesses: Vec<_> = chosen
                        .iter()
                        .map(|k| access(&plain[*k].0, plain[*k].1.len() as u64, *k == target))
                        .collect();
                    let frames = bench.place(&accesses).unwrap();
                    let parts: Vec<&Vec<u8>> =
                        frames.iter().map(|frame| &bench.model.buffers[frame]).collect();
                    let add = |parts: &[&[u8]], at: usize| {
                        parts.iter().fold(1_u8, |sum, p| sum.wrapping_add(p[at % p.len()]))
                    };
                    let lengths: Vec<usize> = chosen.iter().map(|k| plain[*k].1.len()).collect();
                    let placed: Vec<&[u8]> =
                        parts.iter().zip(&lengths).map(|(part, len)| &part[..*len]).collect();
                    let (from, to) = (random(200) as usize, lengths[lengths.len() - 1]);
                    let sums: Vec<u8> = (from..to).map(|at| add(&placed, at)).collect();
                    let expected: Vec<&[u8]> = chosen.iter().map(|k| &plain[*k].1[..]).collect();
                    let wanted: Vec<u8> = (from..to).map(|at| add(&expected, at)).collect();
                    assert_eq!(sums, wanted, "round {round}, step {step}");
                    let frame = frames[frames.len() - 1];
                    bench.model.buffers.get_mut(&frame).unwrap()[from..to].copy_from_slice(&sums);
                    plain[target].1[from..to].copy_from_slice(&sums);
                }
                _ => {}
            }
            assert!(bench.model.device <= limit, "{} of {limit}", bench.model.device);
        }
        assert!(bench.model.paged_in > 0 || limit > 30 * PAGE);
    }
}

#[test]
fn buffers_waste_at_most_an_eighth() {
    for bytes in [65_792, 100_000, 1 << 20, (1 << 20) + 256, 3 << 20, (5 << 28) + 512] {
        let class = size_class(bytes);
        assert!(class >= bytes && class <= bytes + bytes / 8 && class.is_multiple_of(256));
        assert_eq!(size_class(class), class);
    }
    assert_eq!(size_class(4 << 20), 4 << 20, "weights often have such sizes");
}

#[test]
fn the_variable_names_bytes() {
    assert_eq!(wanted(&|_| Some("2G".into())), Some(2 << 30));
    for off in [None, Some(""), Some("0"), Some("much")] {
        assert_eq!(wanted(&|_| off.map(str::to_owned)), None);
    }
    assert!(
        problem(&|_| Some("much".into())).is_some_and(|l| l.starts_with("TF_WGPU_PAGING=much"))
    );
    assert_eq!([problem(&|_| None), problem(&|_| Some("0".into()))], [None, None]);
}
