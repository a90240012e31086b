//! Creates pipeline caches from stored bytes, which a driver takes as its own.

/// Creates a cache that holds `data`, or an empty one.
pub(crate) fn create(device: &wgpu::Device, data: Option<&[u8]>) -> wgpu::PipelineCache {
    let descriptor = wgpu::PipelineCacheDescriptor { label: None, data, fallback: true };
    // SAFETY: the contract is that `data` came from get_data of a cache of the same adapter and
    // driver. The file that it was read from names both, and its length and checksum are right;
    // wgpu compares device and driver version once more.
    unsafe { device.create_pipeline_cache(&descriptor) }
}
