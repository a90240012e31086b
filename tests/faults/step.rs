//! A step of a training, through the crate's own API: uploads small and large, a product, an
//! activation, a reduction, a variable's update, batches without a wait, copies of any alignment,
//! memory that grows, a timer. Its numbers are small integers, so that they are exact.

use std::sync::Arc;
use std::time::Duration;

use tensorflow_wgpu::device::Device;
use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::{DType, Error, HostTensor, Result};

const ROWS: usize = 48;
const INNER: usize = 40;
const COLUMNS: usize = 24;
/// Larger than the uploads that are staged in the recorder's own chunks.
const LARGE: usize = 3 << 18;
/// Larger than the blocks from which wgpu cuts buffers.
const GROWTH: u64 = 300 << 20;
/// The number of copies in a chain without a wait: more than one batch.
const CHAIN: usize = 70;
/// How long a callback may take.
const CALLBACK: Duration = Duration::from_secs(60);

/// A device under training.
pub struct Training {
    pub session: Session,
    /// A tensor that does not change: its address and contents.
    kept: Option<(u64, Vec<u8>)>,
}

fn bytes(n: usize, seed: u64) -> Vec<u8> {
    (0..n as u64).map(|i| (i * 7 + (i >> 8) * 3 + seed * 13 + 1) as u8).collect()
}

/// Integers from -3 to 3.
fn integers(n: usize, seed: u64) -> Vec<f32> {
    (0..n as u64).map(|i| ((i * 5 + i / 7 + seed * 3) % 7) as f32 - 3.0).collect()
}

impl Training {
    /// A training on `device`, with a tensor that is checked later.
    pub fn new(device: Arc<Device>) -> Self {
        Self { session: Session::new(device), kept: None }
    }

    fn device(&self) -> &Device {
        &self.session.device
    }

    /// Makes the tensor that is kept, if there is none yet.
    pub fn keep(&mut self) -> Result<()> {
        if self.kept.is_none() {
            let contents = bytes(5000, 99);
            let address = self.device().allocate(5000)?;
            self.device().upload(address, &contents)?;
            self.device().synchronize()?;
            self.kept = Some((address, contents));
        }
        Ok(())
    }

    /// Reads the kept tensor. Wrong contents are a panic.
    pub fn check_kept(&self) -> Result<()> {
        let Some((address, contents)) = &self.kept else { return Ok(()) };
        let mut got = vec![0; contents.len()];
        self.device().download(*address, &mut got)?;
        assert!(got == *contents, "a tensor of before the fault has changed");
        Ok(())
    }

    /// One step. Wrong numbers are a panic; `round` makes them differ from those of other steps.
    pub fn step(&mut self, round: u64) -> Result<()> {
        self.layer(round)?;
        self.memory(round)?;
        self.growth(round)?;
        self.batches(round)?;
        self.timing()
    }

    /// A product, its activation, their mean over the rows, and the update of a variable by it.
    fn layer(&mut self, round: u64) -> Result<()> {
        let (x, w) = (integers(ROWS * INNER, round), integers(INNER * COLUMNS, round + 1));
        let mut sums = vec![0.0f32; COLUMNS];
        let mut active = Vec::new();
        for row in 0..ROWS {
            for (column, sum) in sums.iter_mut().enumerate() {
                let product: f32 =
                    (0..INNER).map(|k| x[row * INNER + k] * w[k * COLUMNS + column]).sum();
                active.push(product.max(0.0));
                *sum += product.max(0.0);
            }
        }
        let t = DType::F32;
        let product =
            Node::new("MatMul").attr("T", t).attr("transpose_a", false).attr("transpose_b", false);
        let inputs = [
            HostTensor::f32(&[ROWS, INNER], &x).into(),
            HostTensor::f32(&[INNER, COLUMNS], &w).into(),
        ];
        let product = self.run(&product, &inputs)?;
        let relu = self.run(&Node::new("Relu").attr("T", t), &[product.into()])?;
        assert_eq!(relu.values::<f32>(), active, "product and activation of round {round}");
        let sum = Node::new("Sum").attr("T", t).attr("Tidx", DType::I32).attr("keep_dims", false);
        let sum = self.run(&sum, &[relu.into(), HostTensor::i32(&[1], &[0]).into()])?;
        assert_eq!(sum.values::<f32>(), sums, "sums of round {round}");
        let start = integers(COLUMNS, round + 2);
        let variable = self.session.variable(&HostTensor::f32(&[COLUMNS], &start))?;
        let descent =
            Node::new("ResourceApplyGradientDescent").attr("T", t).attr("use_locking", false);
        let rate = HostTensor::f32(&[], &[0.5]).into();
        self.session.run(&descent, &[Input::Variable(variable), rate, sum.into()])?;
        let updated: Vec<f32> = start.iter().zip(&sums).map(|(v, d)| v - 0.5 * d).collect();
        assert_eq!(
            self.session.variable_value(variable)?.values::<f32>(),
            updated,
            "variable of round {round}"
        );
        Ok(())
    }

    fn run(&mut self, node: &Node, inputs: &[Input]) -> Result<HostTensor> {
        let outputs = self.session.run(node, inputs)?;
        outputs.into_iter().next().ok_or_else(|| Error::Internal("an op without an output".into()))
    }

    /// Memory that grows from step to step, a large upload, a copy of any alignment, a large
    /// read-back.
    fn memory(&mut self, round: u64) -> Result<()> {
        let large = bytes(LARGE + 4 * (round as usize % 8) * 1024, round);
        let device = self.device();
        let size = large.len() as u64;
        let to = device.allocate(size + 64)?;
        let copied = (|| {
            let from = device.allocate(size)?;
            let copied = (|| {
                device.upload(from, &large)?;
                device.fill(to, size + 64, 0x0505_0505)?;
                device.copy(to + 3, from + 1, size - 1)?;
                let mut got = vec![0; size as usize + 64];
                device.download(to, &mut got)?;
                Ok(got)
            })();
            device.deallocate(from)?;
            copied
        })();
        device.deallocate(to)?;
        let got: Vec<u8> = copied?;
        assert!(got[3..large.len() + 2] == large[1..], "a copy of round {round}");
        assert!(
            got[..3] == [5; 3] && got[large.len() + 2..].iter().all(|b| *b == 5),
            "around a copy of round {round}"
        );
        Ok(())
    }

    /// A block for which wgpu asks the driver directly, unlike small ones; only its end is used.
    fn growth(&mut self, round: u64) -> Result<()> {
        let device = self.device();
        let size = GROWTH + (round % 8) * (16 << 20);
        let contents = bytes(4096, round + 3);
        let block = device.allocate(size)?;
        let end = block + size - 4096;
        let mut got = vec![0; 4096];
        let copied = device.upload(end, &contents).and_then(|()| device.download(end, &mut got));
        device.deallocate(block)?;
        copied?;
        assert!(got == contents, "a large block of round {round}");
        Ok(())
    }

    /// A chain of copies that fills several batches, with a callback behind it, which must run in
    /// any case.
    fn batches(&mut self, round: u64) -> Result<()> {
        let device = self.device();
        let size = 4096;
        let contents = bytes(size as usize, round + 5);
        let block = device.allocate(size * (CHAIN as u64 + 1))?;
        let chained = (|| {
            device.upload(block, &contents)?;
            for link in 0..CHAIN as u64 {
                device.copy(block + (link + 1) * size, block + link * size, size)?;
            }
            let (sender, receiver) = std::sync::mpsc::channel();
            device.host_callback(move || sender.send(()).unwrap_or_default());
            receiver.recv_timeout(CALLBACK).expect("a callback comes");
            device.synchronize()?;
            let mut got = vec![0; size as usize];
            device.download(block + CHAIN as u64 * size, &mut got)?;
            Ok(got)
        })();
        device.deallocate(block)?;
        assert!(chained? == contents, "the end of a chain of round {round}");
        Ok(())
    }

    fn timing(&mut self) -> Result<()> {
        let device = self.device();
        let timer = device.timer();
        timer.start(device);
        self.check_kept()?;
        timer.stop(device);
        timer.nanoseconds(device).map(drop)
    }

    /// Every way to use a lost device except memory allocation, which may succeed. Each must return
    /// an error that reports the loss, and the callback must run.
    pub fn assert_lost(&self) {
        let device = self.device();
        let mut word = [0; 4];
        let address = self.kept.as_ref().map_or(0, |(address, _)| *address);
        let (sender, receiver) = std::sync::mpsc::channel();
        device.host_callback(move || sender.send(()).unwrap_or_default());
        receiver.recv_timeout(CALLBACK).expect("a callback comes on a lost device");
        let uses = [
            ("upload", device.upload(address, &word)),
            ("copy", device.copy(address + 64, address, 64)),
            ("download", device.download(address, &mut word)),
            ("synchronize", device.synchronize()),
            ("check", device.check()),
        ];
        for (name, result) in uses {
            match result {
                Err(e) if is_lost(&e) => {}
                other => panic!("{name} on a lost device: {other:?}"),
            }
        }
    }
}

/// Whether `error` reports the loss of the device with the advice.
pub fn is_lost(error: &Error) -> bool {
    matches!(error, Error::Unavailable(m) if m.contains("lost") && m.contains("restart"))
}
