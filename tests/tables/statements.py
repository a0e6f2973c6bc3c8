"""What DBeaver and Grafana ask of a database, as far as topics are concerned.

DBeaver asks through JDBC, with parameters, in this order: who it is, which databases there are,
their schemas and types, then what the tree shows below a schema and a table. Grafana sends whole
texts; its queries of time series are what its macros become. Each statement has to be answered,
and `sees` says which rows have to be among the answer's, as texts; None stands for any.
"""
import collections

Statement = collections.namedtuple("Statement", "text values sees none", defaults=((), (), False))

SCHEMA = "(SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = 'kafka_topics')"


def dbeaver(topic, schema, table):
    """`schema` and `table` are what `oid_of_schema` and `oid_of_table` gave."""
    here, this = (f"long:{schema}",), (f"long:{table}",)
    return [
        Statement("SELECT current_database(), current_schema(), session_user",
                  sees=[["default", "kafka_topics", None]]),
        Statement("SELECT current_schema(), session_user", sees=[["kafka_topics", None]]),
        Statement("SHOW search_path", sees=[["kafka_topics"]]),
        Statement("SELECT version()", sees=[[None]]),
        Statement("SELECT db.oid, db.* FROM pg_catalog.pg_database db "
                  "WHERE datallowconn AND NOT datistemplate AND db.datname = ?",
                  ("text:default",), [[None, None, "default"]]),
        Statement("SELECT db.oid, db.* FROM pg_catalog.pg_database db WHERE datallowconn "
                  "AND (NOT datistemplate OR db.datname = ?) ORDER BY db.datname",
                  ("text:default",), [[None, None, "default"]]),
        Statement("SELECT * FROM pg_catalog.pg_settings WHERE name = ?",
                  ("text:standard_conforming_strings",)),
        Statement("SELECT typcategory FROM pg_catalog.pg_type LIMIT 1", sees=[[None]]),
        Statement("SELECT n.oid, n.*, d.description FROM pg_catalog.pg_namespace n "
                  "LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = n.oid "
                  "AND d.objsubid = 0 AND d.classoid = 'pg_namespace'::regclass "
                  "ORDER BY nspname", sees=[[None, None, "kafka_topics"]]),
        Statement("SELECT t.oid, t.*, c.relkind, format_type(nullif(t.typbasetype, 0), "
                  "t.typtypmod) AS base_type_name, d.description FROM pg_catalog.pg_type t "
                  "LEFT OUTER JOIN pg_catalog.pg_type et ON et.oid = t.typelem "
                  "LEFT OUTER JOIN pg_catalog.pg_class c ON c.oid = t.typrelid "
                  "LEFT OUTER JOIN pg_catalog.pg_description d ON t.oid = d.objoid "
                  "WHERE t.typname IS NOT NULL AND (c.relkind IS NULL OR c.relkind = 'c') "
                  "AND (et.typcategory IS NULL OR et.typcategory <> 'C') "
                  "AND t.typnamespace = ?", here),
        Statement("SELECT a.oid, a.* FROM pg_catalog.pg_roles a ORDER BY a.rolname"),
        Statement("SELECT t.oid, t.* FROM pg_catalog.pg_tablespace t ORDER BY t.oid"),
        Statement("SELECT am.oid, am.* FROM pg_catalog.pg_am am ORDER BY am.oid"),
        Statement("SELECT l.oid, l.* FROM pg_catalog.pg_language l ORDER BY l.oid"),
        Statement("SELECT e.oid, e.*, n.nspname AS schema_name FROM pg_catalog.pg_extension e "
                  "JOIN pg_namespace n ON n.oid = e.extnamespace ORDER BY e.oid"),
        Statement("SELECT c.oid, c.*, d.description, pg_catalog.pg_get_expr(c.relpartbound, "
                  "c.oid) AS partition_expr, pg_catalog.pg_get_partkeydef(c.oid) AS partition_key "
                  "FROM pg_catalog.pg_class c LEFT OUTER JOIN pg_catalog.pg_description d "
                  "ON d.objoid = c.oid AND d.objsubid = 0 AND d.classoid = 'pg_class'::regclass "
                  "WHERE c.relnamespace = ? AND c.relkind NOT IN ('i', 'I', 'c')",
                  here, [[str(table), str(table), topic]]),
        Statement("SELECT c.relname, a.*, pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) "
                  "AS def_value, dsc.description, dep.objid FROM pg_catalog.pg_attribute a "
                  "INNER JOIN pg_catalog.pg_class c ON (a.attrelid = c.oid) "
                  "LEFT OUTER JOIN pg_catalog.pg_attrdef ad "
                  "ON (a.attrelid = ad.adrelid AND a.attnum = ad.adnum) "
                  "LEFT OUTER JOIN pg_catalog.pg_description dsc "
                  "ON (c.oid = dsc.objoid AND a.attnum = dsc.objsubid) "
                  "LEFT OUTER JOIN pg_depend dep ON dep.refobjid = a.attrelid "
                  "AND dep.deptype = 'i' AND dep.refobjsubid = a.attnum AND dep.classid = "
                  "dep.refclassid WHERE NOT a.attisdropped AND c.oid = ? ORDER BY a.attnum",
                  this, [[topic, None, "kafka_offset"]]),
        Statement("SELECT c.oid, c.*, t.relname AS tabrelname, rt.relnamespace AS refnamespace, "
                  "d.description, case when c.contype='c' then \"substring\"("
                  "pg_get_constraintdef(c.oid), 7) else null end consrc_copy "
                  "FROM pg_catalog.pg_constraint c "
                  "INNER JOIN pg_catalog.pg_class t ON t.oid = c.conrelid "
                  "LEFT OUTER JOIN pg_catalog.pg_class rt ON rt.oid = c.confrelid "
                  "LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = c.oid "
                  "AND d.objsubid = 0 AND d.classoid = 'pg_constraint'::regclass "
                  "WHERE c.conrelid = ? ORDER BY c.oid", this, none=True),
        Statement("SELECT i.*, i.indkey AS keys, c.relname, c.relnamespace, c.relam, "
                  "c.reltablespace, tc.relname AS tabrelname, dsc.description, "
                  "pg_catalog.pg_get_expr(i.indpred, i.indrelid) AS pred_expr, "
                  "pg_catalog.pg_get_expr(i.indexprs, i.indrelid, true) AS expr, "
                  "pg_catalog.pg_relation_size(i.indexrelid) AS index_rel_size "
                  "FROM pg_catalog.pg_index i "
                  "INNER JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid "
                  "INNER JOIN pg_catalog.pg_class tc ON tc.oid = i.indrelid "
                  "LEFT OUTER JOIN pg_catalog.pg_description dsc ON i.indexrelid = dsc.objoid "
                  "WHERE i.indrelid = ? ORDER BY c.relname", this, none=True),
        Statement("SELECT x.oid, x.*, p.pronamespace AS func_schema_id, d.description "
                  "FROM pg_catalog.pg_trigger x "
                  "LEFT OUTER JOIN pg_catalog.pg_proc p ON p.oid = x.tgfoid "
                  "LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = x.oid "
                  "WHERE x.tgrelid = ? AND NOT x.tgisinternal", this, none=True),
        Statement("SELECT p.oid, p.*, d.description FROM pg_catalog.pg_proc p "
                  "LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = p.oid "
                  "WHERE p.pronamespace = ? ORDER BY p.proname", here, none=True),
        Statement("SELECT DISTINCT dep.deptype, dep.classid, dep.objid, cl.relkind "
                  "FROM pg_depend dep LEFT JOIN pg_class cl ON dep.objid = cl.oid "
                  "WHERE dep.refobjid = ? ORDER BY cl.relkind", this, none=True),
        Statement("SELECT * FROM kafka_topics.\"{}\" LIMIT 200".format(topic)),
        Statement("SELECT count(*) FROM kafka_topics.\"{}\"".format(topic)),
        Statement("SELECT x.* FROM kafka_topics.\"{}\" x WHERE kafka_partition = ? "
                  "ORDER BY x.kafka_offset DESC".format(topic), ("long:0",)),
        Statement("EXPLAIN SELECT count(*) FROM kafka_topics.\"{}\"".format(topic)),
    ]


def oid_of_schema():
    return "SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = ?", ("text:kafka_topics",)


def oid_of_table(topic, schema):
    return ("SELECT oid FROM pg_catalog.pg_class WHERE relname = ? AND relnamespace = ?",
            (f"text:{topic}", f"long:{schema}"))


# The names that are not searched for in Grafana's list of tables.
HIDDEN = "('information_schema', 'pg_catalog', '_timescaledb_cache', 'timescaledb_information')"
# Grafana's way to ask for what is on the search path, to the letter.
ON_THE_PATH = """quote_ident(table_schema) IN (
          SELECT
            CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END
          FROM
            generate_series(
              array_lower(string_to_array(current_setting('search_path'),','),1),
              array_upper(string_to_array(current_setting('search_path'),','),1)
            ) as i,
            string_to_array(current_setting('search_path'),',') s
          )"""


def minutes(topic, first, last):
    """$__timeGroup of a minute: rows of a time series."""
    time = "timestamp_producer"
    return (f"SELECT floor(extract(epoch from {time})/60)*60 AS \"time\", count(*) AS \"rows\" "
            f'FROM kafka_topics."{topic}" WHERE {time} BETWEEN '
            f"'{first}' AND '{last}' GROUP BY 1 ORDER BY 1")


def grafana(topic, first, last):
    """`first` and `last` are times as Grafana writes them, around all rows of the topic."""
    table, time = f'kafka_topics."{topic}"', "timestamp_producer"
    name = f"kafka_topics.{topic}"
    within = f"{time} BETWEEN '{first}' AND '{last}'"
    return [
        Statement("SELECT 1", sees=[["1"]]),
        Statement("SELECT current_setting('server_version_num')::int/100 AS version",
                  sees=[[None]]),
        Statement("SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'", none=True),
        Statement("SELECT schema_name AS \"name\" FROM information_schema.schemata "
                  f"WHERE schema_name NOT IN {HIDDEN} ORDER BY schema_name",
                  sees=[["kafka_topics"]]),
        Statement("SELECT quote_ident(table_name) AS \"table\" FROM information_schema.tables "
                  "WHERE quote_ident(table_schema) = 'kafka_topics' ORDER BY 1", sees=[[topic]]),
        Statement(f"SELECT CASE WHEN {ON_THE_PATH} THEN quote_ident(table_name) "
                  "ELSE quote_ident(table_schema) || '.' || quote_ident(table_name) END "
                  "AS \"table\" FROM information_schema.tables "
                  f"WHERE quote_ident(table_schema) NOT IN {HIDDEN} "
                  f"ORDER BY CASE WHEN {ON_THE_PATH} THEN 0 ELSE 1 END, 1",
                  sees=[[f"kafka_topics.{topic}"]]),
        Statement("SELECT quote_ident(column_name) AS \"column\", data_type AS \"type\" "
                  "FROM information_schema.columns WHERE CASE "
                  f"WHEN array_length(parse_ident('{name}'),1) = 2 "
                  f"THEN quote_ident(table_schema) = (parse_ident('{name}'))[1] "
                  f"AND quote_ident(table_name) = (parse_ident('{name}'))[2] "
                  f"ELSE quote_ident(table_name) = '{name}' AND {ON_THE_PATH} END",
                  sees=[["kafka_offset", None]]),
        Statement(f"SELECT {time} AS \"time\", kafka_offset FROM {table} WHERE {within} "
                  "ORDER BY 1 LIMIT 50"),
        Statement(f"SELECT extract(epoch from {time}) AS \"time\", kafka_offset FROM {table} "
                  f"WHERE {within} ORDER BY 1 LIMIT 50"),
        Statement(f"SELECT floor(extract(epoch from {time})/0.5)*0.5 AS \"time\", "
                  "json_get_str(utf8(value), 'lava') AS metric, "
                  f"avg(kafka_offset) FROM {table} WHERE {within} GROUP BY 1, 2 ORDER BY 1, 2"),
        Statement(f"SELECT date_bin('1 minute', {time}, timestamp '2000-01-01') AS \"time\", "
                  f"count(*) FROM {table} WHERE {within} GROUP BY 1 ORDER BY 1"),
        Statement(f"SELECT date_trunc('hour', {time}) AS \"time\", max(kafka_offset) "
                  f"FROM {table} WHERE {time} >= '{first}' AND {time} <= '{last}' "
                  "GROUP BY \"time\" ORDER BY \"time\""),
    ]
