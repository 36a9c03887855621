// What the three peers share: everything but the framework.

export { PROBLEM_TYPE, Problem, problemOf } from "./problem.js";
export { bodyOf, routes, unrouted } from "./routes.js";
export { start } from "./start.js";
