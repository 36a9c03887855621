//! Texts of types that only the database knows (`inet`, ranges): the database is asked in which form it
//! stores them, so that the answer shows that form, and a text that it refuses is refused here.

use crate::limits::FORM_WAIT;
use forebay_database::{Computed, Error, Kind, Store};
use forebay_table::LiveRules;
use forebay_value::{Invalid, Schema, Value};

/// Texts to ask about, each with its column.
pub struct Forms(Vec<(usize, Computed)>);

impl Forms {
    /// Those among the values of these columns; `None`: there are none.
    pub fn of<'v>(
        schema: &Schema,
        rules: &LiveRules,
        values: impl Iterator<Item = (usize, &'v Value)>,
    ) -> Option<Forms> {
        let rules = rules.with_forms()?;
        let asked = values.filter_map(|(column, value)| {
            let (Value::Text(text), Some(form)) = (value, rules.form(column)) else { return None };
            let ty = schema.columns[column].ty;
            Some((column, Computed { ty, expression: form.into(), of: Some(text.clone()) }))
        });
        let asked: Vec<_> = asked.collect();
        (!asked.is_empty()).then_some(Forms(asked))
    }

    /// The texts in the form in which the database stores them, by column. None while it is away: it judges
    /// them when they are drained.
    ///
    /// # Errors
    /// The first column whose text it refuses.
    pub async fn ask(self, store: &Store) -> Result<Vec<(usize, Value)>, (usize, Invalid)> {
        let (columns, asked): (Vec<usize>, Vec<Computed>) = self.0.into_iter().unzip();
        let values = match computed(store, asked.clone()).await {
            Err(error) if is_refusal(&error) => ask_each(store, &columns, asked).await?,
            values => values.unwrap_or_default(),
        };
        Ok(columns.into_iter().zip(values).collect())
    }
}

/// Asks again one by one, to name the column whose text is refused. None if no text is: a type was altered,
/// and the database judges what it gets when that is drained.
async fn ask_each(
    store: &Store,
    columns: &[usize],
    asked: Vec<Computed>,
) -> Result<Vec<Value>, (usize, Invalid)> {
    let mut values = Vec::new();
    for (column, asked) in columns.iter().zip(asked) {
        let nothing = Computed {
            ty: asked.ty,
            expression: asked.expression.replace("$given", "NULL").into(),
            of: None,
        };
        match computed(store, vec![asked]).await {
            Ok(value) => values.extend(value),
            Err(error) if error.is_data() || is_refusal(&error) && is_known(store, nothing).await => {
                return Err((*column, Invalid::beyond("a text that the database accepts here")));
            }
            Err(_) => return Ok(Vec::new()),
        }
    }
    Ok(values)
}

/// Whether the database refused a statement. An extension may refuse a text by an internal error.
fn is_refusal(error: &Error) -> bool {
    !error.may_retry() || *error.kind() == Kind::Internal
}

/// Whether the database knows the type of a form, of which it is asked without a text.
async fn is_known(store: &Store, nothing: Computed) -> bool {
    computed(store, vec![nothing]).await.map_or_else(|error| error.is_data(), |_| true)
}

async fn computed(store: &Store, asked: Vec<Computed>) -> Result<Vec<Value>, Error> {
    store.availability()?;
    let late = |_| Err(Error::new(Kind::Busy, "the database does not say in time how it stores a text"));
    tokio::time::timeout(FORM_WAIT, store.computed(asked)).await.unwrap_or_else(late)
}
