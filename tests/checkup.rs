//! The check of an adapter's numbers: on a correct driver every case is right, with the kernels of
//! every adapter.

use tensorflow_wgpu::checkup;
use tensorflow_wgpu::device::{Profile, Selection};

#[test]
fn a_right_driver_passes_with_all_kernels() {
    let selection = Selection::enumerate(&|name| std::env::var(name).ok());
    let adapter = selection.adapters.first().expect("an adapter");
    let own = tensorflow_wgpu::local::Session::shared().unwrap().device.profile();
    let presets = Profile::PRESETS.into_iter().map(|preset| preset.on(own));
    for profile in presets.chain([own, own.portable()]) {
        let wrong = checkup::wrong_cases(adapter, profile, None).unwrap();
        assert!(wrong.is_empty(), "{profile}: {wrong:?}");
    }
}
