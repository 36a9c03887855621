//! Converts model types of the config to types of other crates: methods, listeners and limits of HTTP.
//!
//! The config crate does not depend on those crates; this file checks that its limits equal theirs.

use forebay_config::{limits, model};
use forebay_http::{Limits, Listen, Method, Scheme};

const _: () = assert!(limits::KEPT_BODY_BYTES_MAX == forebay_cache::limits::BODY_BYTES_MAX as u64);

/// The HTTP method of a route; [`Method::Other`] stands for every method.
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

/// The addresses to listen on.
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

/// The limits for one client.
pub fn http_limits(limits: &model::Limits) -> Limits {
    Limits {
        head_bytes: limits.head_bytes,
        target_bytes: limits.target_bytes,
        body_bytes: limits.body_bytes,
        bodies_bytes: limits.bodies_bytes,
        fields: limits.fields,
        head_timeout_ms: limits.head_timeout_ms,
        body_bytes_per_s_min: limits.body_bytes_per_s_min,
        idle_timeout_ms: limits.idle_timeout_ms,
        write_timeout_ms: limits.write_timeout_ms,
        connections: limits.connections,
        handshakes: limits.handshakes,
        pipeline_depth: limits.pipeline_depth,
        output_bytes: limits.output_bytes,
        answers_bytes: limits.answers_bytes,
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
