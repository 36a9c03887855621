const express = require(process.env.EXPRESS);
const app = express();
app.use("/admin", (request, response) => response.send("the treasure"));
app.get("/vault", (request, response) => response.send("the treasure"));
app.use((request, response) => response.send("open"));
app.listen(process.env.PORT, "127.0.0.1");
