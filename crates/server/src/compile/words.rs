//! Words of the config as the crates that they are for say them: methods and limits of HTTP.
//!
//! The config crate knows none of those crates; that its limits are theirs is checked here.

use forebay_config::{limits, model};
use forebay_http::{Limits, Listen, Method, Scheme};

const _: () = assert!(limits::KEPT_BODY_BYTES_MAX == forebay_cache::limits::BODY_BYTES_MAX as u64);

/// The method that a route is asked with; [`Method::Other`] stands for every method.
pub fn method(method: model::Method) -> Method {
    match method {
        model::Method::Get => Method::Get,
        model::Method::Post => Method::Post,
        model::Method::Put => Method::Put,
        model::Method::Patch => Method::Patch,
        model::Method::Delete => Method::Delete,
        model::Method::Any => Method::Other,
    }
}

/// Where to listen.
pub fn listens(listens: &[model::Listen]) -> Vec<Listen> {
    let listen = |listen: &model::Listen| Listen {
        address: listen.address,
        scheme: match listen.scheme {
            model::Scheme::Http => Scheme::Http,
            model::Scheme::Https => Scheme::Https,
        },
    };
    listens.iter().map(listen).collect()
}

/// What one client may take up.
pub fn http_limits(limits: &model::Limits) -> Limits {
    Limits {
        head_bytes: limits.head_bytes,
        target_bytes: limits.target_bytes,
        body_bytes: limits.body_bytes,
        fields: limits.fields,
        head_timeout_ms: limits.head_timeout_ms,
        body_bytes_per_s_min: limits.body_bytes_per_s_min,
        idle_timeout_ms: limits.idle_timeout_ms,
        write_timeout_ms: limits.write_timeout_ms,
        connections: limits.connections,
        handshakes: limits.handshakes,
        pipeline_depth: limits.pipeline_depth,
        output_bytes: limits.output_bytes,
        stop_timeout_ms: limits.stop_timeout_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_limits_has_those_of_the_engine() {
        let limits = http_limits(&model::Limits::default());
        assert_eq!(limits, Limits::default());
        let fields = limits::FIELDS_MAX as usize;
        assert_eq!(Limits { fields, ..limits.clone() }.check(), Ok(()));
        let target_bytes = limits.head_bytes - limits::METHOD_BYTES_MAX - 1;
        assert_eq!(Limits { target_bytes, ..limits }.check(), Ok(()));
    }
}
