CREATE TABLE customers (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  email varchar(40) UNIQUE NOT NULL
);

CREATE TABLE products (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  slug varchar(80) UNIQUE,
  name text,
  price numeric CHECK (price >= 0),
  stock integer DEFAULT 0,
  views bigint DEFAULT 0
);

CREATE TABLE orders (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  customer_id bigint NOT NULL REFERENCES customers,
  product_id bigint NOT NULL REFERENCES products,
  status text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'paid', 'shipped')),
  qty integer NOT NULL CHECK (qty > 0),
  total numeric NOT NULL,
  meta json
);

INSERT INTO customers (email) VALUES ('customer1@example.com'), ('customer2@example.com');
INSERT INTO products (slug, name, price, stock) VALUES ('product-1', 'Product 1', '1.50', 100), ('product-2', 'Product 2', '3.00', 100);
INSERT INTO orders (customer_id, product_id, qty, total) VALUES (2, 1, 1, '1.50'), (2, 2, 1, '3.00');
