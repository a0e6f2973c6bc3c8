//! The names queries know: `"<view>".kafka_topics.<topic>`.
//!
//! A view of the broker is a catalogue, its topics are the tables of one schema, and both follow
//! the broker's own catalogue at each look-up: nothing is copied, a topic is a table from the
//! moment it exists. A look-up opens nothing and asks no core.

use super::files::Files;
use super::provider::TopicTable;
use super::snapshots::Snapshots;
use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, MemoryCatalogProvider, SchemaProvider};
use datafusion::datasource::{TableProvider, TableType};
use datafusion::error::Result;
use std::sync::Arc;

/// The schema that holds a view's topics.
pub const TOPICS_SCHEMA: &str = "kafka_topics";

/// The catalogue of a view.
pub fn catalog(source: Arc<dyn Snapshots>, files: Arc<Files>) -> Result<Arc<dyn CatalogProvider>> {
    let catalog = MemoryCatalogProvider::new();
    catalog.register_schema(TOPICS_SCHEMA, Arc::new(Topics { source, files }))?;
    Ok(Arc::new(catalog))
}

/// The topics of a view as tables.
#[derive(Debug)]
struct Topics {
    source: Arc<dyn Snapshots>,
    files: Arc<Files>,
}

#[async_trait]
impl SchemaProvider for Topics {
    fn table_names(&self) -> Vec<String> {
        let mut names = self.source.topics();
        names.sort();
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if !self.source.has(name) {
            return Ok(None);
        }
        let (source, files) = (self.source.clone(), self.files.clone());
        Ok(Some(Arc::new(TopicTable { source, topic: name.to_string(), files })))
    }

    async fn table_type(&self, name: &str) -> Result<Option<TableType>> {
        Ok(self.source.has(name).then_some(TableType::Base))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.source.has(name)
    }
}
