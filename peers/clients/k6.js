// What k6 does over and over: one GET of URL, kept alive.
import http from "k6/http";

export default function () {
  http.get(__ENV.URL);
}
