//! The identity of an endpoint's cached answers: what their cache keys begin with, on every server that
//! shares a cache.
//!
//! Promises that two endpoints have the same identity only when their answers are interchangeable. Everything
//! that an answer, its lifetime or its tags depend on is part of the identity. Settings that only decide who
//! may call, how often and with which timeout (`guard`, `rate`, `timeout`, `concurrency`), or how a cached
//! answer is sent (`etag`, `compress`), are not.
//!
//! | value | bytes |
//! |---|---|
//! | text | 4: its length, then UTF-8 |
//! | number | 8 |
//! | flag, choice | 1 |
//! | option | 1: 0 or 1, then the value if 1 |
//! | list | 4: the number of items, then each item |
//!
//! Numbers are little-endian. The version (1 byte) comes first, then the fields in the order of [`encode`].
//! Only servers with the same version share entries, so a change of this encoding needs a new version;
//! entries of the old version expire.

use super::answer_headers;
use crate::start_error::StartError;
use forebay_config::model::{
    Access, Action, Caching, Consistency, Constraint, Endpoint, Expr, Function, Heed, Literal, Param,
    ParamKind, ParamType, Part, Proxied, Proxy, Redirect, Reply, Returns, Sql, Statements,
};

const VERSION: u8 = 3;

/// The identity of an endpoint with `cache`, from its database and the value of `base_url()`.
///
/// # Errors
/// A sentence when the action's answers cannot be cached.
pub fn encode(
    endpoint: &Endpoint,
    caching: &Caching,
    database: &str,
    public_url: Option<&str>,
) -> Result<Vec<u8>, StartError> {
    // Every field is named, here and below, so that a new field does not compile until its effect is decided.
    let Endpoint {
        method,
        route,
        params,
        headers,
        action,
        reply,
        cache: _,
        guard: _,
        rate: _,
        timeout_ms: _,
        concurrency: _,
        durability: _,
        batch: _,
        invalidates: _,
        etag: _,
        compress: _,
        takes_encoded_slash: _,
        answer_headers,
        has_strict_body: _,
        csrf: _,
        line: _,
    } = endpoint;
    let mut writer = Writer(vec![VERSION]);
    writer.text(database);
    writer.option(public_url, Writer::text);
    writer.text(method.name());
    writer.text(route);
    writer.list(params, Writer::param);
    writer.list(headers, |writer, (header, name)| writer.texts([header, name]));
    writer.reply(reply);
    writer.caching(caching);
    writer.action(action)?;
    // These fields of an upstream's answer are not cached.
    let names = answer_headers::names(answer_headers);
    if !names.is_empty() {
        writer.list(&names, |writer, name| writer.text(name.as_str()));
    }
    Ok(writer.0)
}

struct Writer(Vec<u8>);

impl Writer {
    fn choice(&mut self, choice: u8) {
        self.0.push(choice);
    }

    fn flag(&mut self, flag: bool) {
        self.choice(flag.into());
    }

    fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn length(&mut self, length: usize) {
        self.0.extend_from_slice(&(length as u32).to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.length(text.len());
        self.0.extend_from_slice(text.as_bytes());
    }

    fn texts<const N: usize>(&mut self, texts: [&str; N]) {
        texts.into_iter().for_each(|text| self.text(text));
    }

    fn option<T>(&mut self, option: Option<T>, write: impl FnOnce(&mut Writer, T)) {
        self.flag(option.is_some());
        if let Some(value) = option {
            write(self, value);
        }
    }

    fn list<T>(&mut self, items: &[T], mut write: impl FnMut(&mut Writer, &T)) {
        self.length(items.len());
        items.iter().for_each(|item| write(self, item));
    }

    fn param(&mut self, Param { name, kind, line: _ }: &Param) {
        self.text(name);
        match kind {
            ParamKind::Given { ty, default, optional } => {
                self.choice(0);
                self.option(ty.as_ref(), Writer::param_type);
                self.option(default.as_ref(), Writer::expr);
                self.flag(*optional);
            }
            ParamKind::Computed(expr) => {
                self.choice(1);
                self.expr(expr);
            }
        }
    }

    fn param_type(&mut self, ParamType { ty, constraint, is_array }: &ParamType) {
        self.text(&ty.to_string());
        self.flag(*is_array);
        match constraint {
            Constraint::None => self.choice(0),
            Constraint::Url => self.choice(1),
            Constraint::Slug => self.choice(2),
            Constraint::Range { min, max } => {
                self.choice(3);
                self.number(*min as u64);
                self.number(*max as u64);
            }
        }
    }

    fn expr(&mut self, expr: &Expr) {
        match expr {
            Expr::Param(name) => {
                self.choice(0);
                self.text(name);
            }
            Expr::Column(name) => {
                self.choice(1);
                self.text(name);
            }
            Expr::Literal(literal) => {
                self.choice(2);
                self.literal(literal);
            }
            Expr::Call { function, args } => {
                self.choice(3);
                self.function(*function);
                self.list(args, Writer::expr);
            }
            Expr::Coalesce(first, second) => {
                self.choice(4);
                self.expr(first);
                self.expr(second);
            }
            Expr::Template(parts) => {
                self.choice(5);
                self.list(parts, |writer, part| match part {
                    Part::Text(text) => {
                        writer.choice(0);
                        writer.text(text);
                    }
                    Part::Expr(expr) => {
                        writer.choice(1);
                        writer.expr(expr);
                    }
                });
            }
        }
    }

    fn literal(&mut self, literal: &Literal) {
        match literal {
            Literal::Text(text) => {
                self.choice(0);
                self.text(text);
            }
            Literal::Int(number) => {
                self.choice(1);
                self.number(*number as u64);
            }
            Literal::Float(number) => {
                self.choice(2);
                self.number(number.to_bits());
            }
            Literal::Bool(flag) => {
                self.choice(3);
                self.flag(*flag);
            }
        }
    }

    fn function(&mut self, function: Function) {
        self.choice(match function {
            Function::Uuid => 0,
            Function::Uuid7 => 1,
            Function::Now => 2,
            Function::RandomBase64 => 3,
            Function::RandomCode => 4,
            Function::RandomInt => 5,
            Function::OneOf => 6,
            Function::Given => 7,
            Function::BaseUrl => 8,
            Function::Sha256 => 9,
        });
    }

    fn reply(&mut self, Reply { status, wrap, fields, not_found }: &Reply) {
        self.option(*status, |writer, status| writer.number(status.into()));
        self.option(wrap.as_deref(), Writer::text);
        self.option(fields.as_deref(), |writer, fields| {
            writer.list(fields, |writer, (name, value)| {
                writer.text(name);
                writer.expr(value);
            });
        });
        self.option(not_found.as_deref(), Writer::text);
    }

    fn caching(&mut self, caching: &Caching) {
        let Caching {
            consistency,
            local_ms,
            shared_ms,
            missing_ms,
            stale_while_revalidate_ms,
            stale_if_error_ms,
            refresh_ms,
            max_age_ms,
            is_for_all_identities,
            vary,
            tags,
            proxied,
        } = caching;
        self.choice(match consistency {
            Consistency::Eventual => 0,
            Consistency::Strict => 1,
        });
        self.number(*local_ms);
        self.option(*shared_ms, Writer::number);
        self.number(*missing_ms);
        self.number(*stale_while_revalidate_ms);
        self.number(*stale_if_error_ms);
        self.number(*refresh_ms);
        self.option(*max_age_ms, Writer::number);
        self.flag(*is_for_all_identities);
        self.list(vary, |writer, name| writer.text(name));
        self.list(tags, Writer::expr);
        let Proxied { heed, keeps_private, ignore, strip, largest_bytes } = proxied;
        self.choice(match heed {
            Heed::Always => 0,
            Heed::Explicit => 1,
            Heed::Never => 2,
        });
        self.flag(*keeps_private);
        self.list(ignore, |writer, name| writer.text(name));
        self.list(strip, |writer, name| writer.text(name));
        self.number(*largest_bytes);
    }

    fn action(&mut self, action: &Action) -> Result<(), StartError> {
        match action {
            Action::Sql(Sql { statements, returns }) => {
                self.choice(0);
                self.statements(statements);
                self.choice(match returns {
                    Returns::One => 0,
                    Returns::Many => 1,
                    Returns::None => 2,
                });
            }
            Action::Redirect(Redirect { table, key, location, status, increment, expires }) => {
                self.choice(5);
                self.text(table);
                self.expr(key);
                self.text(location);
                self.number((*status).into());
                self.option(increment.as_deref(), Writer::text);
                self.option(expires.as_deref(), Writer::text);
            }
            Action::Constant(body) => {
                self.choice(6);
                self.text(body);
            }
            Action::Proxy(proxy) => {
                self.choice(7);
                self.proxy(proxy);
            }
            action => {
                let facts = action.facts().filter(|facts| facts.access != Access::Write);
                let facts = facts.ok_or("answers of this action cannot be cached")?;
                self.choice(1);
                // `does` names the table too.
                self.text(&facts.does);
                self.list(&facts.values, |writer, (_, value)| writer.expr(value));
            }
        }
        Ok(())
    }

    fn statements(&mut self, statements: &Statements) {
        match statements {
            Statements::Any(sql) => {
                self.choice(0);
                self.text(sql);
            }
            Statements::Each { postgres, sqlite } => {
                self.choice(1);
                self.option(postgres.as_deref(), Writer::text);
                self.option(sqlite.as_deref(), Writer::text);
            }
        }
    }

    /// The upstreams, and what they learn of the request. Timeouts and retries do not change the answer.
    fn proxy(&mut self, proxy: &Proxy) {
        let Proxy {
            upstreams,
            keeps_host,
            trusts_front,
            keep_headers,
            passes_credentials,
            request_headers,
            strip_prefix,
            ca: _,
            connect_timeout_ms: _,
            silence_timeout_ms: _,
            tunnel_timeout_ms: _,
            retries: _,
            health: _,
            body_bytes: _,
        } = proxy;
        self.list(upstreams, |writer, upstream| writer.text(upstream));
        self.flag(*keeps_host);
        self.flag(*trusts_front);
        self.list(keep_headers, |writer, name| writer.text(name));
        self.flag(*passes_credentials);
        self.list(request_headers, |writer, (name, value)| {
            writer.text(name);
            writer.expr(value);
        });
        self.option(strip_prefix.as_deref(), Writer::text);
    }
}

#[cfg(test)]
mod tests;
