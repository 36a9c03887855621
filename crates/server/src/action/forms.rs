//! Texts of types that only the database knows (`inet`, ranges): the database is asked in which form it
//! stores them, so that the answer shows that form, and a text that it refuses is refused here.

use crate::limits::FORM_WAIT;
use forebay_database::{Error, Kind, Store};
use forebay_table::LiveRules;
use forebay_value::{Form, Invalid, Value};
use futures_util::future::join_all;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A text to ask about.
struct Asked {
    column: usize,
    form: Form,
    text: Box<str>,
}

/// Texts to ask about.
pub struct Forms(Vec<Asked>);

/// A text and the form in which the database stores it.
pub struct Known {
    column: usize,
    text: Value,
    stored: Value,
}

/// The texts that the database has been asked about, by column.
#[derive(Default)]
pub struct KnownForms(Vec<Known>);

impl KnownForms {
    /// Puts a value in its stored form; returns whether that was known.
    pub fn apply(&self, column: usize, value: &mut Value) -> bool {
        let known = self.0.iter().find(|known| known.column == column && known.text == *value);
        known.is_some_and(|known| {
            *value = known.stored.clone();
            true
        })
    }

    pub fn extend(&mut self, more: KnownForms) {
        self.0.extend(more.0);
    }
}

impl Forms {
    /// Those among the values of these columns; `None`: there are none.
    pub fn of<'v>(rules: &LiveRules, values: impl Iterator<Item = (usize, &'v Value)>) -> Option<Forms> {
        let rules = rules.with_forms()?;
        let asked = values.filter_map(|(column, value)| {
            let (Value::Text(text), Some(form)) = (value, rules.form(column)) else { return None };
            Some(Asked { column, form: form.clone(), text: text.clone() })
        });
        let asked: Vec<_> = asked.collect();
        (!asked.is_empty()).then_some(Forms(asked))
    }
}

/// The database, as far as it says how it stores a text. Once it has not answered in time, no write waits for
/// it until it has answered again.
pub struct FormSource {
    store: Store,
    is_silent: AtomicBool,
    is_probed: AtomicBool,
}

impl FormSource {
    pub fn new(store: Store) -> Arc<FormSource> {
        Arc::new(FormSource { store, is_silent: AtomicBool::new(false), is_probed: AtomicBool::new(false) })
    }

    /// The form of each text. None while the database is away: it judges the texts when they are drained.
    ///
    /// # Errors
    /// The first column whose text it refuses.
    pub async fn ask(self: &Arc<Self>, Forms(asked): Forms) -> Result<KnownForms, (usize, Invalid)> {
        if self.store.availability().is_err() {
            return Ok(KnownForms::default());
        }
        if self.is_silent.load(Relaxed) {
            if !self.is_probed.swap(true, Relaxed) {
                let own = self.clone();
                tokio::spawn(async move {
                    // Only whether it answers counts.
                    let _ = own.answers(&asked).await;
                    own.is_probed.store(false, Relaxed);
                });
            }
            return Ok(KnownForms::default());
        }
        let answers = tokio::time::timeout(FORM_WAIT, self.answers(&asked)).await;
        answers.unwrap_or_else(|_| {
            self.is_silent.store(true, Relaxed);
            Ok(KnownForms::default())
        })
    }

    async fn answers(&self, asked: &[Asked]) -> Result<KnownForms, (usize, Invalid)> {
        let answers = asked.iter().map(|asked| self.store.form(&asked.form, Some(asked.text.clone())));
        let mut known = KnownForms::default();
        for (asked, answer) in asked.iter().zip(join_all(answers).await) {
            let Asked { column, form, text } = asked;
            let is_refused = match &answer {
                Ok(_) => false,
                Err(error) => error.is_data() || is_refusal(error) && self.knows(form).await,
            };
            self.is_silent.fetch_and(answer.is_err() && !is_refused, Relaxed);
            if is_refused {
                return Err((*column, Invalid::beyond("a text that the database accepts here")));
            }
            // A type that was altered: the database judges the text when it is drained.
            let Ok(stored) = answer else { continue };
            known.0.push(Known { column: *column, text: Value::Text(text.clone()), stored });
        }
        Ok(known)
    }

    /// Whether the database knows the type of a form.
    async fn knows(&self, form: &Form) -> bool {
        self.store.form(form, None).await.map_or_else(|error| error.is_data(), |_| true)
    }
}

/// Whether the database refused a statement. An extension may refuse a text by an internal error.
fn is_refusal(error: &Error) -> bool {
    !error.may_retry() || *error.kind() == Kind::Internal
}
