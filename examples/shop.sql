CREATE TABLE customers (
  id bigserial PRIMARY KEY,
  email varchar(40) UNIQUE NOT NULL
);

CREATE TABLE products (
  id bigserial PRIMARY KEY,
  slug varchar(80) UNIQUE,
  name text,
  price numeric(10,2) CHECK (price >= 0),
  stock integer DEFAULT 0,
  views bigint DEFAULT 0
);

CREATE TYPE order_status AS ENUM ('pending', 'paid', 'shipped');

CREATE TABLE orders (
  id bigserial PRIMARY KEY,
  customer_id bigint NOT NULL REFERENCES customers,
  product_id bigint NOT NULL REFERENCES products,
  status order_status NOT NULL DEFAULT 'pending',
  qty smallint NOT NULL CHECK (qty > 0),
  total numeric(8,2) NOT NULL,
  meta jsonb
);

INSERT INTO customers (email) SELECT 'customer' || i || '@example.com' FROM generate_series(1, 10) AS i;
INSERT INTO products (slug, name, price, stock) SELECT 'product-' || i, 'Product ' || i, i * 1.5, 100 FROM generate_series(1, 50) AS i;
INSERT INTO orders (customer_id, product_id, qty, total) SELECT 1 + i % 10, 1 + i % 50, 1, 1.5 FROM generate_series(1, 300) AS i;
