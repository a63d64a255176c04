//! Another program behind the limiter.

use std::{fs, path::Path};

use aya::{Ebpf, programs::Xdp};
use ratelimit::network::{next::Next, program::Clock};
use xtask::lab::BpfFs;

use super::{
    frame::udp,
    limiter::{Limiter, network},
};

const DROP: u32 = 1;
const PASS: u32 = 2;

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn only_what_passes_goes_to_the_next_program() {
    let pins = BpfFs::mount().expect("a BPF file system");
    let path = pins.path().join("behind");
    let object = Path::new(env!("RATELIMIT_BPF_OBJECT")).with_file_name("bench-drop.bpf.o");
    let mut ebpf = Ebpf::load(&fs::read(object).expect("it was built")).expect("it loads");
    let program: &mut Xdp = ebpf.program_mut("bench_drop").expect("a program").try_into().expect("for XDP");
    program.load().expect("the kernel takes it");
    program.pin(&path).expect("a pin");

    let policy = network(&format!("next: {}, deny: [203.0.113.0/24]", path.display()));
    let mut limiter = Limiter::load(&policy, Clock::Kernel);
    let frame = udp("198.51.100.7").frame();
    let denied = udp("203.0.113.7").frame();
    let run = |limiter: &mut Limiter, frame: &[u8]| limiter.program.run(frame, 1).expect("it runs").0;

    assert_eq!(run(&mut limiter, &frame), PASS, "nobody is there yet");
    Next::open(&path).expect("it is of use").follow(&mut limiter.program).expect("it fits");
    assert_eq!(run(&mut limiter, &frame), DROP, "the next program's verdict");
    assert_eq!(run(&mut limiter, &denied), DROP);
    let (passed, shed) = limiter.reason("no_rule");
    assert_eq!((passed.packets, shed.packets), (2, 0), "what is handed on has passed");
    assert_eq!(limiter.reason("denied").1.packets, 1);

    // Behind a program on the virtual clock there is nobody.
    let mut replayed = Limiter::load(&policy, Clock::Replay);
    Next::open(&path).expect("it is of use").follow(&mut replayed.program).expect("it fits");
    assert!(!replayed.frame(&frame, 0).dropped);
}
