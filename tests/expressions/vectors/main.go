// Writes vectors.json: what the Go library makes of each line of expressions.txt in environment.json, and what Go makes
// of each text of coercions.json. With "serve" it answers expressions from standard input, one JSON text per line.
// With "bench" it says how many expressions it parses and evaluates per second.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
)

// JSON numbers without a point are ints here, so that environments can have both.
func typed(value any) any {
	switch v := value.(type) {
	case json.Number:
		if n, err := strconv.Atoi(v.String()); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	case []any:
		for i := range v {
			v[i] = typed(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = typed(v[k])
		}
	}
	return value
}

func encode(value any) any {
	switch v := value.(type) {
	case nil:
		return nil
	case bool, string:
		return v
	case time.Time:
		return map[string]any{"time": v.String()}
	case time.Duration:
		return map[string]any{"duration": v.String()}
	}
	r := reflect.ValueOf(value)
	switch r.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return map[string]any{"int": strconv.FormatInt(r.Int(), 10)}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return map[string]any{"int": strconv.FormatUint(r.Uint(), 10)}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"float": fmt.Sprintf("%v", r.Float())}
	case reflect.String:
		return r.String()
	case reflect.Slice, reflect.Array:
		out := []any{}
		for i := 0; i < r.Len(); i++ {
			out = append(out, encode(r.Index(i).Interface()))
		}
		return out
	case reflect.Map:
		pairs := [][2]any{}
		for _, key := range r.MapKeys() {
			pairs = append(pairs, [2]any{encode(key.Interface()), encode(r.MapIndex(key).Interface())})
		}
		sort.Slice(pairs, func(i, j int) bool { return fmt.Sprint(pairs[i][0]) < fmt.Sprint(pairs[j][0]) })
		return map[string]any{"map": pairs}
	}
	return map[string]any{"go": fmt.Sprintf("%T", value)}
}

type vector struct {
	Expression string `json:"expression"`
	Value      any    `json:"value"`
	Error      string `json:"error,omitempty"`
	At         *int   `json:"at,omitempty"`
	Why        string `json:"why,omitempty"`
}

func failed(v vector, kind string, err error) vector {
	v.Error = kind
	v.Why = strings.SplitN(err.Error(), "\n", 2)[0]
	if at, ok := err.(*file.Error); ok {
		v.At = &at.From
	}
	return v
}

func evaluate(expression string, environment map[string]any) (v vector) {
	v.Expression = expression
	if _, err := parser.Parse(expression); err != nil {
		return failed(v, "syntax", err)
	}
	// As Kargo does: without a declared environment, so that names have any type
	program, err := expr.Compile(expression)
	if err != nil {
		return failed(v, "type", err)
	}
	result, err := expr.Run(program, environment)
	if err != nil {
		return failed(v, "runtime", err)
	}
	v.Value = encode(result)
	return v
}

type coercion struct {
	Text   string `json:"text"`
	Float  any    `json:"float"`
	Bool   any    `json:"bool"`
	Quoted string `json:"quoted"`
	JSON   string `json:"json"`
}

func coerce(text string) coercion {
	c := coercion{Text: text, Quoted: strconv.Quote(text)}
	if f, err := strconv.ParseFloat(text, 64); err == nil {
		c.Float = fmt.Sprintf("%v", f)
	}
	if b, err := strconv.ParseBool(text); err == nil {
		c.Bool = b
	}
	written, _ := json.Marshal(text)
	c.JSON = string(written)
	return c
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func read(path string) any {
	in, err := os.Open(path)
	must(err)
	defer in.Close()
	decoder := json.NewDecoder(in)
	decoder.UseNumber()
	var value any
	must(decoder.Decode(&value))
	return typed(value)
}

func lines() []string {
	in, err := os.ReadFile("expressions.txt")
	must(err)
	found := []string{}
	for _, line := range strings.Split(string(in), "\n") {
		if line == "" || strings.HasPrefix(line, "## ") {
			continue
		}
		if rest, ok := strings.CutPrefix(line, "!json "); ok {
			must(json.Unmarshal([]byte(rest), &line))
		}
		found = append(found, line)
	}
	return found
}

// One item a line, so that a change shows as one.
func writeLines[T any](out *os.File, items []T) {
	for i, item := range items {
		var line bytes.Buffer
		encoder := json.NewEncoder(&line)
		encoder.SetEscapeHTML(false)
		must(encoder.Encode(item))
		comma := ","
		if i == len(items)-1 {
			comma = ""
		}
		fmt.Fprintf(out, "%s%s\n", bytes.TrimSuffix(line.Bytes(), []byte("\n")), comma)
	}
}

// Of all threads, so that other programs on the machine do not count.
func cpuSeconds() float64 {
	var used syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

func main() {
	environment := read("environment.json").(map[string]any)
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		scanner := bufio.NewScanner(os.Stdin)
		scanner.Buffer(nil, 1<<20)
		out := json.NewEncoder(os.Stdout)
		for scanner.Scan() {
			var expression string
			must(json.Unmarshal(scanner.Bytes(), &expression))
			must(out.Encode(evaluate(expression, environment)))
		}
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "bench" {
		scanner := bufio.NewScanner(os.Stdin)
		expressions := []string{}
		for scanner.Scan() {
			expressions = append(expressions, scanner.Text())
		}
		begin, count := cpuSeconds(), 0
		for cpuSeconds()-begin < 2 {
			for _, expression := range expressions {
				program, err := expr.Compile(expression)
				must(err)
				_, err = expr.Run(program, environment)
				must(err)
				count++
			}
		}
		fmt.Printf("%.0f\n", float64(count)/(cpuSeconds()-begin))
		return
	}
	vectors, coercions := []vector{}, []coercion{}
	for _, line := range lines() {
		vectors = append(vectors, evaluate(line, environment))
	}
	for _, text := range read("coercions.json").([]any) {
		coercions = append(coercions, coerce(text.(string)))
	}
	out, err := os.Create("vectors.json")
	must(err)
	fmt.Fprint(out, "{\"vectors\": [\n")
	writeLines(out, vectors)
	fmt.Fprint(out, "], \"coercions\": [\n")
	writeLines(out, coercions)
	fmt.Fprint(out, "]}\n")
	must(out.Close())
}
