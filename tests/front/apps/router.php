<?php
// What many applications do by hand: parse_url, decoded once.
$path = rawurldecode((string) parse_url($_SERVER["REQUEST_URI"], PHP_URL_PATH));
$path = rtrim(preg_replace("#/+#", "/", $path), "/. ");
echo $path === "/admin" || $path === "/vault" || str_starts_with($path, "/admin/") ? "the treasure" : "open";
