// Errors that a client is told about, as RFC 9457 says them.

import { STATUS_CODES } from "node:http";

export const PROBLEM_TYPE = "application/problem+json";

/** Thrown by a route; the framework's file turns it into an answer. */
export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** What is sent for an error: status and body. Frameworks' own errors (a body that is no JSON) carry a status too. */
export function problemOf(error) {
  const status = error?.status ?? error?.statusCode;
  const known = Number.isInteger(status) && status >= 400 && status < 500;
  if (!known && !(error instanceof Problem)) console.error(error);
  const code = known || error instanceof Problem ? status : 500;
  return {
    status: code,
    body: {
      type: "about:blank",
      title: STATUS_CODES[code],
      status: code,
      detail: code === 500 ? "something unexpected happened" : error.message,
    },
  };
}
