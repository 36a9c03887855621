// ServeMux cleans paths and routes by the decoded form.
package main

import (
	"io"
	"net/http"
	"os"
)

func say(text string) http.HandlerFunc {
	return func(answer http.ResponseWriter, _ *http.Request) { io.WriteString(answer, text) }
}

func main() {
	http.HandleFunc("/admin", say("the treasure"))
	http.HandleFunc("/admin/", say("the treasure"))
	http.HandleFunc("/vault", say("the treasure"))
	http.HandleFunc("/", say("open"))
	panic(http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), nil))
}
