package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/cairnstate/cairn/api"
)

var update = flag.Bool("update", false, "write the generated document anew")

const documentFile = "../../api/openapi.json"

// TestOpenAPI holds the document in package api to the table of routes.
func TestOpenAPI(t *testing.T) {
	document, err := documentOf(false)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(document, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	if *update {
		if err := os.WriteFile(documentFile, got, 0o644); err != nil {
			t.Fatal(err)
		}
	} else if !bytes.Equal(got, api.OpenAPI) {
		t.Errorf("%s is not what the routes and types say: run `make generate`", documentFile)
	}
	doc, err := openapi3.NewLoader().LoadFromData(got)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestOpenAPIIsServed reads the document as nobody.
func TestOpenAPIIsServed(t *testing.T) {
	s := newStack(t)
	for _, path := range []string{"/api/openapi.json", "//api/openapi.json"} {
		if a := s.do("GET", path, "", nil); a.status != 200 || a.header.Get("Content-Type") != "application/json" || !bytes.Equal(a.body, api.OpenAPI) {
			t.Errorf("%s: %d %.100s", path, a.status, a.body)
		}
	}
	if a := s.do("POST", "/api/openapi.json", "", nil); a.status != 404 {
		t.Errorf("POST: %d", a.status)
	}
}

// TestAnswersAreHeldToTheDocument shows that the check of every answer in the
// tests can fail.
func TestAnswersAreHeldToTheDocument(t *testing.T) {
	h := newStack(t).handler
	branch := `{"branch":{"name":"b","head_sha":"x","created_at":"y"}}`
	for body, ok := range map[string]bool{
		branch: true,
		strings.Replace(branch, `"name":"b",`, "", 1):        false,
		strings.Replace(branch, `"b"`, "null", 1):            false,
		strings.Replace(branch, `"b"`, "1", 1):               false,
		strings.Replace(branch, `"b"`, `"b","surplus":1`, 1): false,
		"[]": false, "": false,
	} {
		if err := (answer{200, nil, []byte(body)}).described(h, "GET", "/api/v1/repos/branch"); (err == nil) != ok {
			t.Errorf("%s: %v", body, err)
		}
	}
	if err := (answer{404, nil, []byte(branch)}).described(h, "GET", "/api/v1/repos/branch"); err == nil {
		t.Error("an error without a message passed")
	}
	if err := (answer{201, nil, []byte(branch)}).described(h, "GET", "/api/v1/repos/branch"); err == nil {
		t.Error("a status that is not in the document passed")
	}
}

type dict = map[string]any

// documentOf makes the document. A strict one allows no member that it does not
// name.
func documentOf(strict bool) (dict, error) {
	docs, err := readDocs()
	if err != nil {
		return nil, err
	}
	d := &describer{strict: strict, docs: docs, schemas: dict{}, answered: map[reflect.Type]bool{}}
	paths := dict{}
	mount := func(path string, r *route, legacy bool) {
		path = strings.ReplaceAll(path, repoSegment, "{repo}")
		if paths[path] == nil {
			paths[path] = dict{}
		}
		paths[path].(dict)[strings.ToLower(r.method)] = d.operation(r, path, legacy)
	}
	for _, r := range routes() {
		d.answers(r.op.response)
		if r.legacy != "" {
			mount("/api/v1/"+r.legacy, r, true)
		}
		if r.path != "" {
			mount("/api/"+r.path, r, false)
		}
	}
	d.answers(reflect.TypeFor[api.Error]())
	d.schema(reflect.TypeFor[api.Error]())
	return dict{
		"openapi": "3.1.0",
		"info": dict{
			"title": "Cairn", "version": "1",
			"description": "The REST interface of Cairn. " + d.docs["api"],
			"license":     dict{"name": "Apache-2.0", "identifier": "Apache-2.0"},
		},
		"security": []any{dict{"bearer": []any{}}, dict{"basic": []any{}}},
		"paths":    paths,
		"components": dict{
			"schemas": d.schemas,
			"securitySchemes": dict{
				"bearer": dict{"type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "A token that the org's key signed."},
				"basic":  dict{"type": "http", "scheme": "basic", "description": "Any user name, and the token as the password, as Git sends it."},
			},
			"responses": dict{"Error": dict{
				"description": d.docs["Error"],
				"content":     dict{"application/json": dict{"schema": reference("Error")}},
			}},
		},
	}, errors.Join(d.faults...)
}

type describer struct {
	faults   []error
	strict   bool
	docs     map[string]string // by type, type.Field and constant's type
	schemas  dict
	answered map[reflect.Type]bool // types that are part of answers
}

func (d *describer) operation(r *route, path string, legacy bool) dict {
	about := r.op.request
	if about == reflect.TypeFor[api.None]() {
		about = r.op.response
	}
	o := dict{
		"operationId": r.name, "tags": []any{strings.Split(r.name, ".")[0]},
		"description": d.docs[about.Name()], "responses": d.responses(r),
		"x-scopes": r.access.scopes,
	}
	if legacy {
		o["operationId"], o["deprecated"] = r.name+".v1", r.path != ""
	}
	parameters := []any{}
	for name := range strings.SplitSeq(path, "/") {
		if strings.HasPrefix(name, "{") {
			parameters = append(parameters, d.parameter("path", strings.Trim(name, "{}"), r.op.request))
		}
	}
	body := false
	for f := range fields(r.op.request) {
		if tag, _, _ := strings.Cut(f.Tag.Get("query"), ","); tag != "" {
			parameters = append(parameters, dict{
				"name": tag, "in": "query", "description": d.docs[r.op.request.Name()+"."+f.Name], "schema": d.schema(f.Type),
			})
		}
		body = body || memberName(f) != ""
	}
	if r.once {
		parameters = append(parameters, header(keyHeader, maxKey,
			"A name that the client makes for the request, of visible ASCII characters. Whoever sends the same request again with it gets the answer to the first, with "+replayedHeader+": true; another request with it is refused with code \"idempotency_mismatch\"."))
	}
	if r.op.response == reflect.TypeFor[api.EventList]() {
		parameters = append(parameters, header("Last-Event-ID", 0, "The id of the last event that the reader of a stream got; it takes the place of \"after\"."))
	}
	if len(parameters) > 0 {
		o["parameters"] = parameters
	}
	switch {
	case r.op.body == "application/x-ndjson":
		o["requestBody"] = dict{"content": dict{r.op.body: dict{"schema": d.schema(r.op.request)}}}
	case r.op.body != "":
		o["requestBody"] = dict{"content": dict{r.op.body: dict{"schema": dict{}}}}
	case body && r.method != http.MethodGet && r.method != http.MethodHead:
		o["requestBody"] = dict{"content": dict{"application/json": dict{"schema": d.schema(r.op.request)}}}
	}
	return o
}

// header describes a header that a request may have, of up to so many bytes.
func header(name string, limit int, text string) dict {
	schema := dict{"type": "string", "minLength": 1}
	if limit > 0 {
		schema["maxLength"] = limit
	}
	return dict{"name": name, "in": "header", "description": text, "schema": schema}
}

func (d *describer) parameter(in, name string, request reflect.Type) dict {
	text := "The name of the repository, as one escaped segment."
	for f := range fields(request) {
		if f.Tag.Get("path") == name {
			text = d.docs[request.Name()+"."+f.Name]
		}
	}
	return dict{"name": name, "in": in, "required": true, "description": text, "schema": dict{"type": "string"}}
}

func (d *describer) responses(r *route) dict {
	refusal := dict{"$ref": "#/components/responses/Error"}
	if r.method == http.MethodHead {
		return dict{"2XX": dict{"description": "The headers of the content."}, "default": dict{"description": "A refusal, without a body."}}
	}
	success := dict{"description": d.docs[r.op.response.Name()]}
	switch {
	case r.op.response == reflect.TypeFor[[]byte]():
		success["description"] = "The content."
		success["content"] = dict{"*/*": dict{"schema": dict{}}}
		return dict{"2XX": success, "304": dict{"description": "The content that the client has is the present one."}, "default": refusal}
	case success["description"] == "":
		d.fault("type %s of route %s has no comment", r.op.response, r.name)
	}
	success["content"] = dict{"application/json": dict{"schema": d.schema(r.op.response)}}
	if r.op.response == reflect.TypeFor[api.EventList]() {
		success["content"].(dict)[eventStream] = dict{"schema": dict{
			"type": "string", "contentMediaType": eventStream,
			"description": "Server-sent events that go on as they happen. Each has an id, as event the type, and as data an Event in JSON. " +
				"The event \"" + gapEvent + "\", whose data is an EventGap, stands for events that are not kept any more. Comments are signs of life.",
			"x-data": dict{"oneOf": []any{d.schema(reflect.TypeFor[api.Event]()), d.schema(reflect.TypeFor[api.EventGap]())}},
		}}
	}
	status := "2XX"
	if r.op.status != 0 {
		status = strconv.Itoa(r.op.status)
	}
	out := dict{status: success, "default": refusal}
	if r.op.response == reflect.TypeFor[api.NoteUpdate]() {
		either := []any{d.schema(r.op.response), reference("Error")}
		told := dict{"description": "A refusal. Once the object of the note is found it has the shape of the answer.",
			"content": dict{"application/json": dict{"schema": dict{"oneOf": either}}}}
		out["403"], out["409"] = told, told
	}
	return out
}

// answers marks a type and all that it holds as part of an answer.
func (d *describer) answers(t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		d.answers(t.Elem())
	case reflect.Struct:
		if d.answered[t] {
			return
		}
		d.answered[t] = true
		for f := range fields(t) {
			d.answers(f.Type)
		}
	}
}

// schema describes a type; structs and words become components.
func (d *describer) schema(t reflect.Type) dict {
	switch t.Kind() {
	case reflect.Pointer:
		return d.schema(t.Elem())
	case reflect.Bool:
		return dict{"type": "boolean"}
	case reflect.String:
		if words := d.docs["words:"+t.Name()]; words != "" {
			return dict{"type": "string", "enum": strings.Split(words, "\n")}
		}
		return dict{"type": "string"}
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Uint64:
		return dict{"type": "integer"}
	case reflect.Float64:
		return dict{"type": "number"}
	case reflect.Interface:
		return dict{}
	case reflect.Map:
		return dict{"type": "object", "additionalProperties": d.schema(t.Elem())}
	case reflect.Slice:
		switch {
		case t == reflect.TypeFor[json.RawMessage]():
			return dict{}
		case t.Elem().Kind() == reflect.Uint8:
			return dict{"type": "string", "contentEncoding": "base64"}
		}
		return dict{"type": "array", "items": d.schema(t.Elem())}
	case reflect.Struct:
		if d.schemas[t.Name()] == nil {
			d.schemas[t.Name()] = dict{} // for types that hold themselves
			d.schemas[t.Name()] = d.component(t)
		}
		return reference(t.Name())
	}
	d.fault("type %s cannot be described", t)
	return nil
}

func (d *describer) fault(format string, args ...any) {
	d.faults = append(d.faults, fmt.Errorf(format, args...))
}

func (d *describer) component(t reflect.Type) dict {
	properties, required := dict{}, []string{}
	for f := range fields(t) {
		name := memberName(f)
		if name == "" {
			continue
		}
		property := d.schema(f.Type)
		if text := d.docs[t.Name()+"."+f.Name]; text != "" {
			property["description"] = text
		}
		properties[name] = property
		if d.answered[t] && !strings.Contains(f.Tag.Get("json"), ",omit") {
			required = append(required, name)
		}
	}
	c := dict{"type": "object", "description": d.docs[t.Name()], "properties": properties}
	if c["description"] == "" {
		d.fault("type %s has no comment", t)
	}
	if len(required) > 0 {
		slices.Sort(required)
		c["required"] = required
	}
	if d.strict {
		c["additionalProperties"] = false
	}
	return c
}

func reference(name string) dict { return dict{"$ref": "#/components/schemas/" + name} }

// memberName is the name of a field in JSON, "" for none.
func memberName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return strings.Trim(name, "-")
}

// fields yields the fields of a struct, those of embedded ones too.
func fields(t reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		if t.Kind() != reflect.Struct {
			return
		}
		for _, f := range reflect.VisibleFields(t) {
			if !f.Anonymous && f.IsExported() && !yield(f) {
				return
			}
		}
	}
}

// readDocs reads the comments of package api: by type, by Type.Field, and under
// "words:Type" the values of a type of strings.
func readDocs() (map[string]string, error) {
	files, err := filepath.Glob("../../api/*.go")
	if err != nil {
		return nil, err
	}
	docs := map[string]string{}
	for _, name := range files {
		file, err := parser.ParseFile(gotoken.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		if file.Doc != nil {
			docs["api"] = oneLine(file.Doc)
		}
		for _, decl := range file.Decls {
			if g, ok := decl.(*ast.GenDecl); ok {
				readDecl(docs, g)
			}
		}
	}
	return docs, nil
}

func readDecl(docs map[string]string, g *ast.GenDecl) {
	for _, spec := range g.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			docs[s.Name.Name] = oneLine(g.Doc, s.Doc)
			if st, ok := s.Type.(*ast.StructType); ok {
				for _, f := range st.Fields.List {
					for _, n := range f.Names {
						docs[s.Name.Name+"."+n.Name] = oneLine(f.Doc, f.Comment)
					}
				}
			}
		case *ast.ValueSpec:
			kind, named := s.Type.(*ast.Ident)
			if !named || g.Tok != gotoken.CONST {
				continue
			}
			for _, v := range s.Values {
				if lit, ok := v.(*ast.BasicLit); ok && lit.Kind == gotoken.STRING {
					docs["words:"+kind.Name] = strings.TrimPrefix(docs["words:"+kind.Name]+"\n"+strings.Trim(lit.Value, `"`), "\n")
				}
			}
		}
	}
}

func oneLine(groups ...*ast.CommentGroup) string {
	var text []string
	for _, g := range groups {
		text = append(text, strings.Fields(g.Text())...)
	}
	return strings.Join(text, " ")
}

// contract is the document in which nothing is allowed that it does not name.
var contract = sync.OnceValues(func() (*openapi3.T, error) {
	document, err := documentOf(true)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	doc, err := openapi3.NewLoader().LoadFromData(data)
	if err != nil {
		return nil, err
	}
	return doc, doc.Validate(context.Background())
})

// described reports where an answer is not what the document says.
func (a answer) described(h *Handler, method, path string) error {
	doc, err := contract()
	if err != nil {
		return err
	}
	schema := doc.Components.Schemas["Error"]
	if method == http.MethodHead && a.status >= 400 {
		return nil
	}
	if p, _ := h.find(split(path)); p != nil && p.methods[method] != nil {
		if schema, err = promised(doc, p.methods[method], a.status); schema == nil {
			return err
		}
	} else if slices.Equal(split(path), documentPath) {
		return nil
	}
	var v any
	if err := json.Unmarshal(a.body, &v); err != nil {
		return fmt.Errorf("%w in %.200s", err, a.body)
	}
	return schema.Value.VisitJSON(v, openapi3.EnableJSONSchema2020())
}

// promised returns the schema of an answer, nil where it is not JSON.
func promised(doc *openapi3.T, r *route, status int) (*openapi3.SchemaRef, error) {
	path := "/api/" + r.path
	if r.path == "" {
		path = "/api/v1/" + r.legacy
	}
	responses := doc.Paths.Value(strings.ReplaceAll(path, repoSegment, "{repo}")).GetOperation(r.method).Responses
	response := responses.Value(strconv.Itoa(status))
	if response == nil && status < 300 {
		response = responses.Value("2XX")
	}
	if response == nil && status >= 400 {
		return doc.Components.Schemas["Error"], nil
	}
	if response == nil {
		return nil, fmt.Errorf("status %d of route %s is not in the document", status, r.name)
	}
	if media := response.Value.Content["application/json"]; media != nil {
		return media.Schema, nil
	}
	return nil, nil
}
