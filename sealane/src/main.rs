//! placeholder
#![forbid(unsafe_code)]

use sealane::config::{Config, Simple};
use sealane::control::{ConfigSource, Control};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let simple = Simple {
        admin: None,
        backends: vec![sealane::config::value::backend_address(&a[2]).unwrap()],
        certificates: vec![a[3].clone().into()],
        lanes: std::num::NonZeroUsize::new(a[4].parse().unwrap()),
        listen: vec![a[1].parse().unwrap()],
    };
    let config = Config::simple(simple).unwrap();
    let control = Control::start(ConfigSource::Flags(Box::new(config.clone())), config).unwrap();
    for b in control.bound() {
        eprintln!("bound {b}");
    }
    eprintln!("{:?}", control.run());
}
