//! PostgreSQL's JDBC driver, which DBeaver is built on. The steps are in ../readers.py, and three
//! more: `ask MODE BASE64 [TYPE:VALUE...]` prints the rows of a prepared statement, `metadata
//! TOPIC` what the driver knows of a topic, `ends-early` ends statements that would run for long.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.OffsetDateTime;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.Properties;

public class Jdbc {
    static final String COLUMNS = "kafka_partition, kafka_offset, key, value, timestamp_broker, "
        + "timestamp_producer";
    // Fewer than a topic has rows, so that they come in several portions.
    static final int PORTION = 1000;
    static final String LONG = "SELECT count(*) FROM generate_series(1, 10000000) a, "
        + "generate_series(1, 10000000) b WHERE a.value + b.value = 0";
    static String address;

    public static void main(String[] arguments) throws Exception {
        address = arguments[0];
        var steps = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = steps.readLine()) != null; ) {
            var words = List.of(line.trim().split(" "));
            String closing = "done";
            try {
                step(words.get(0), words.subList(1, words.size()));
            } catch (SQLException | RuntimeException error) {
                closing = "failed " + json(error.toString());
            }
            System.out.println(closing);
            System.out.flush();
        }
    }

    static void step(String name, List<String> words) throws SQLException {
        switch (name) {
            case "version" -> System.out.println("pgjdbc " + DriverManager.getDriver(url())
                .getClass().getPackage().getImplementationVersion());
            case "rows" -> rows("", words.get(0));
            case "where" -> rows(" WHERE kafka_partition = ? AND kafka_offset >= ?",
                words.get(0), Long.valueOf(words.get(1)), Long.valueOf(words.get(2)));
            case "count" -> one("SELECT count(*) FROM " + table(words.get(0)));
            case "ends" -> one("SELECT max(kafka_offset) || ' ' || min(kafka_offset) FROM "
                + table(words.get(0)));
            case "ask" -> ask(words);
            case "metadata" -> metadata(words.get(0));
            case "ends-early" -> endsEarly();
            default -> throw new IllegalArgumentException("there is no step " + name);
        }
    }

    static String url() {
        return "jdbc:postgresql://" + address + "/default";
    }

    static Connection connect(String mode) throws SQLException {
        var settings = new Properties();
        settings.setProperty("user", "reader");
        settings.setProperty("preferQueryMode", mode);
        settings.setProperty("connectTimeout", "10");
        settings.setProperty("socketTimeout", "60");
        var connection = DriverManager.getConnection(url(), settings);
        connection.setClientInfo("ApplicationName", "DBeaver - Main");
        return connection;
    }

    static String table(String topic) {
        return "kafka_topics.\"" + topic + "\"";
    }

    /// Read-only and in portions, as DBeaver reads what it shows.
    static void rows(String filter, String topic, Object... values) throws SQLException {
        try (var connection = connect("extended")) {
            connection.setReadOnly(true);
            connection.setAutoCommit(false);
            var query = "SELECT " + COLUMNS + " FROM " + table(topic) + filter;
            try (var statement = connection.prepareStatement(query)) {
                statement.setFetchSize(PORTION);
                for (int at = 0; at < values.length; at++) {
                    statement.setObject(at + 1, values[at]);
                }
                try (var found = statement.executeQuery()) {
                    while (found.next()) {
                        System.out.println("[" + found.getInt(1) + ", " + found.getLong(2) + ", "
                            + hex(found.getBytes(3)) + ", " + hex(found.getBytes(4)) + ", [], "
                            + micros(found, 5) + ", " + micros(found, 6) + "]");
                    }
                }
            }
            connection.commit();
        }
    }

    static void one(String query) throws SQLException {
        try (var connection = connect("simple"); var statement = connection.createStatement();
                var found = statement.executeQuery(query)) {
            found.next();
            System.out.println(found.getString(1));
        }
    }

    static String hex(byte[] bytes) {
        return bytes == null ? "null" : json(HexFormat.of().formatHex(bytes));
    }

    static String micros(ResultSet found, int column) throws SQLException {
        var moment = found.getObject(column, OffsetDateTime.class);
        return moment == null ? "null" : Long.toString(
            ChronoUnit.MICROS.between(OffsetDateTime.parse("1970-01-01T00:00:00Z"), moment));
    }

    static void ask(List<String> words) throws SQLException {
        var text = new String(Base64.getDecoder().decode(words.get(1)), StandardCharsets.UTF_8);
        try (var connection = connect(words.get(0));
                var statement = connection.prepareStatement(text)) {
            for (int at = 2; at < words.size(); at++) {
                set(statement, at - 1, words.get(at));
            }
            if (statement.execute()) {
                show(statement.getResultSet());
            }
        }
    }

    static void set(PreparedStatement statement, int at, String word) throws SQLException {
        var value = word.substring(word.indexOf(':') + 1);
        switch (word.substring(0, word.indexOf(':'))) {
            case "long" -> statement.setLong(at, Long.parseLong(value));
            case "text" -> statement.setString(at, value);
            default -> throw new IllegalArgumentException(word);
        }
    }

    /// The names of the columns, then the rows, each as a list of texts.
    static void show(ResultSet found) throws SQLException {
        try (found) {
            var about = found.getMetaData();
            var names = new ArrayList<String>();
            for (int at = 1; at <= about.getColumnCount(); at++) {
                names.add(about.getColumnLabel(at));
            }
            list(names);
            while (found.next()) {
                var row = new ArrayList<String>();
                for (int at = 1; at <= about.getColumnCount(); at++) {
                    row.add(found.getString(at));
                }
                list(row);
            }
        }
    }

    static void list(List<String> texts) {
        System.out.println(texts.stream().map(Jdbc::json).toList());
    }

    static void metadata(String topic) throws SQLException {
        try (var connection = connect("extended")) {
            DatabaseMetaData about = connection.getMetaData();
            var product = about.getDatabaseProductName();
            list(Arrays.asList("product", product, "" + (about.getDatabaseMajorVersion() > 8)));
            named("schema", about.getSchemas(), "TABLE_SCHEM");
            named("catalog", about.getCatalogs(), "TABLE_CAT");
            named("table", about.getTables(null, "kafka_topics", "%", new String[] {"TABLE"}),
                "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE");
            named("column", about.getColumns(null, "kafka_topics", topic, "%"),
                "COLUMN_NAME", "TYPE_NAME", "IS_NULLABLE", "ORDINAL_POSITION");
            named("primary key", about.getPrimaryKeys(null, "kafka_topics", topic), "PK_NAME");
            named("index", about.getIndexInfo(null, "kafka_topics", topic, false, false),
                "INDEX_NAME");
        }
    }

    static void named(String what, ResultSet found, String... columns) throws SQLException {
        try (found) {
            while (found.next()) {
                var row = new ArrayList<>(List.of(what));
                for (var column : columns) {
                    row.add(found.getString(column));
                }
                list(row);
            }
        }
    }

    /// A statement ends when it is cancelled and when its time is over; its connection goes on.
    static void endsEarly() throws SQLException {
        try (var connection = connect("extended"); var statement = connection.createStatement()) {
            var begun = System.nanoTime();
            var canceller = new Thread(() -> {
                try {
                    Thread.sleep(1000);
                    statement.cancel();
                } catch (InterruptedException | SQLException error) {
                    System.err.println(error);
                }
            });
            canceller.start();
            ended("cancelled", statement, begun);
            canceller.join();
            begun = System.nanoTime();
            statement.setQueryTimeout(1);
            ended("timed out", statement, begun);
            statement.setQueryTimeout(0);
            try (var found = statement.executeQuery("SELECT 42")) {
                found.next();
                list(List.of("afterwards", found.getString(1)));
            }
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    static void ended(String how, Statement statement, long begun) {
        try {
            statement.executeQuery(LONG);
            list(List.of(how, "ran to its end"));
        } catch (SQLException error) {
            var seconds = (System.nanoTime() - begun) / 1_000_000_000;
            list(List.of(how, error.getSQLState(), seconds < 20 ? "soon" : "late"));
        }
    }

    static String json(String text) {
        if (text == null) {
            return "null";
        }
        var quoted = new StringBuilder("\"");
        for (char one : text.toCharArray()) {
            switch (one) {
                case '"', '\\' -> quoted.append('\\').append(one);
                default -> quoted.append(one < ' ' ? String.format("\\u%04x", (int) one) : one);
            }
        }
        return quoted.append('"').toString();
    }
}
