//! Header fields that state something about a request: who sent it, from where, and what was asked for
//! originally. Applications believe them, because a proxy in front is expected to write them or to remove
//! them.
//!
//! Sources: RFC 7239 (Forwarded), RFC 3875 section 4.1.18 (a field `Proxy` becomes HTTP_PROXY), and what
//! frameworks, content delivery networks and proxies that log users in document. An application's own fields
//! are not known here.

/// Names in lower case; `*` stands for any end.
const ASSERTED: &[&str] = &[
    // Where a request comes from.
    "cf-connecting-*",
    "cf-ipcountry",
    "cf-pseudo-*",
    "cf-visitor",
    "client-ip",
    "cloudfront-*",
    "fastly-*",
    "fly-*",
    "forwarded",
    "forwarded-*",
    "front-end-https",
    "incap-*",
    "proxy",
    "proxy-client-ip",
    "true-client-ip",
    "wl-proxy-*",
    "x-appengine-*",
    "x-azure-*",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-envoy-*",
    "x-forward-*",
    "x-forwarded",
    "x-forwarded-*",
    "x-forwarder-*",
    "x-nf-*",
    "x-originating-*",
    "x-proxy-*",
    "x-proxyuser-*",
    "x-real-*",
    "x-scheme",
    "x-sucuri-*",
    "x-url-scheme",
    "x-vercel-*",
    // Who sent it.
    "cf-access-*",
    "client-cert*",
    "iv-*",
    "oam-*",
    "remote-*",
    "shib-*",
    "sm-*",
    "ssl-*",
    "tailscale-*",
    "x-amzn-mtls-*",
    "x-amzn-oidc-*",
    "x-anonymous-consumer",
    "x-apigateway-api-userinfo",
    "x-arr-*",
    "x-auth-request-*",
    "x-auth-user*",
    "x-authenticated-*",
    "x-authentik-*",
    "x-client-cert*",
    "x-client-dn",
    "x-client-verify",
    "x-consumer-*",
    "x-credential-*",
    "x-endpoint-api-userinfo",
    "x-goog-authenticated-user-*",
    "x-goog-iap-*",
    "x-jwt-assertion",
    "x-ms-client-principal*",
    "x-ms-token-*",
    "x-pomerium-*",
    "x-remote-*",
    "x-ssl-*",
    "x-userinfo",
    "x-vouch-*",
    "x-webauth-*",
    // What was asked for, and what an answer may contain.
    "x-accel-*",
    "x-host",
    "x-http-host-override",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-middleware-*",
    "x-original-*",
    "x-rewrite-*",
    "x-sendfile-*",
];

/// Whether applications may believe what this field, named in lower case, states about a request.
pub fn is_asserted(name: &[u8]) -> bool {
    // No other field begins with one of these letters and is asserted: most fields are decided here.
    matches!(name.first(), Some(b'c' | b'f' | b'i' | b'o' | b'p' | b'r' | b's' | b't' | b'w' | b'x'))
        && ASSERTED.iter().any(|known| match known.strip_suffix('*') {
            Some(begin) => name.starts_with(begin.as_bytes()),
            None => name == known.as_bytes(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_about_a_request_are_known() {
        for name in [
            "forwarded",
            "x-forwarded-for",
            "x-forwarded-user",
            "x-forwarded-prefix",
            "x-forwarded-client-cert",
            "x-real-ip",
            "proxy",
            "true-client-ip",
            "cf-connecting-ip",
            "x-original-url",
            "x-rewrite-url",
            "remote-user",
            "x-remote-user",
            "x-client-ip",
            "client-ip",
            "x-ssl-client-cert",
            "x-ms-client-principal",
            "x-ms-client-principal-id",
            "x-webauth-user",
            "x-http-method-override",
            "wl-proxy-client-ip",
            "sm-user",
        ] {
            assert!(is_asserted(name.as_bytes()), "{name}");
        }
        for name in [
            "",
            "accept",
            "cache-control",
            "cookie",
            "content-type",
            "host",
            "pragma",
            "priority",
            "proxy-authorization",
            "range",
            "referer",
            "sec-fetch-site",
            "te",
            "traceparent",
            "user-agent",
            "x-api-key",
            "x-client-id",
            "x-client-info",
            "client-id",
            "x-csrf-token",
            "x-request-id",
            "x-requested-with",
        ] {
            assert!(!is_asserted(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn every_known_name_is_found() {
        for known in ASSERTED {
            assert!(is_asserted(known.replace('*', "a").as_bytes()), "{known}");
        }
    }
}
