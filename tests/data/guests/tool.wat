;; A tool plugin by hand, for what no compiler makes: many memories, large tables, many instances.
;; Its one tool is `run`. `;; COMPONENT` stands for more items of the component, `;; IMPORT` and `;; WITH` for what its core module imports
;; and gets, `;; MODULE` for more items of that module, `;; CALL` for what the tool does.
(component
  (import "conclave:plugin/types@0.1.0-draft" (instance $types 
    (type $json' string) (export "json" (type $json (eq $json')))
    (type $blob' (record (field "sha256" string) (field "media-type" string) (field "length" u64) (field "name" (option string))))
    (export "blob" (type $blob (eq $blob')))
    (type $call' (record (field "id" string) (field "name" string) (field "arguments" $json)))
    (export "tool-call" (type $call (eq $call')))
    (type $denial' (record (field "capability" string) (field "target" string) (field "detail" string)))
    (export "denial" (type $denial (eq $denial')))
    (type $extra' (record (field "key" string) (field "value" $json)))
    (export "extra" (type $extra (eq $extra')))))
  (alias export $types "json" (type $json))
  (alias export $types "blob" (type $blob))
  (alias export $types "tool-call" (type $call))
  (alias export $types "denial" (type $denial))
  (alias export $types "extra" (type $extra))
  ;; COMPONENT
  (core module $module
    ;; IMPORT
    (memory (export "memory") 2)
    (global $heap (mut i32) (i32.const 65536))
    ;; The list of tools: ok, one spec at 1088.
    (data (i32.const 1024) "\00\00\00\00\00\00\00\00\40\04\00\00\01\00\00\00")
    (data (i32.const 1088) "\00\10\00\00\03\00\00\00\10\10\00\00\05\00\00\00\20\10\00\00\11\00\00\00")
    (data (i32.const 4096) "run")
    (data (i32.const 4112) "Runs.")
    (data (i32.const 4128) "{\22type\22:\22object\22}")
    ;; MODULE
    (func (export "list") (result i32) (i32.const 1024))
    ;; An outcome without content stands at 2048, where nothing was written.
    (func (export "call") (param i32 i32 i32 i32) (result i32)
      ;; CALL
      (i32.const 2048))
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (local i32)
      (local.set 4 (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
      (global.set $heap (i32.add (local.get 4) (local.get 3)))
      (local.get 4)))
  (core instance $core (instantiate $module ;; WITH
  ))
  (alias core export $core "memory" (core memory $memory))
  (alias core export $core "realloc" (core func $realloc))
  (type $spec (record (field "name" string) (field "description" string) (field "input-schema" $json) (field "output-schema" (option $json)) (field "idempotent" bool) (field "extra" (list $extra))))
  (type $outcome (record (field "content" (option string)) (field "value" (option $json)) (field "attachments" (list $blob)) (field "follow-up-calls" (list $call))))
  (type $error (variant (case "invalid-arguments" string) (case "denied" $denial) (case "unavailable" (option u64)) (case "other" string)))
  ;; An instance can export only types that it names itself, so the functions pass through a component.
  (component $exports
  (import "types" (instance $types 
    (type $json' string) (export "json" (type $json (eq $json')))
    (type $blob' (record (field "sha256" string) (field "media-type" string) (field "length" u64) (field "name" (option string))))
    (export "blob" (type $blob (eq $blob')))
    (type $call' (record (field "id" string) (field "name" string) (field "arguments" $json)))
    (export "tool-call" (type $call (eq $call')))
    (type $denial' (record (field "capability" string) (field "target" string) (field "detail" string)))
    (export "denial" (type $denial (eq $denial')))
    (type $extra' (record (field "key" string) (field "value" $json)))
    (export "extra" (type $extra (eq $extra')))))
  (alias export $types "json" (type $json))
  (alias export $types "blob" (type $blob))
  (alias export $types "tool-call" (type $call))
  (alias export $types "denial" (type $denial))
  (alias export $types "extra" (type $extra))
  (type $spec' (record (field "name" string) (field "description" string) (field "input-schema" $json) (field "output-schema" (option $json)) (field "idempotent" bool) (field "extra" (list $extra))))
  (import "import-spec" (type $spec (eq $spec')))
  (type $outcome' (record (field "content" (option string)) (field "value" (option $json)) (field "attachments" (list $blob)) (field "follow-up-calls" (list $call))))
  (import "import-outcome" (type $outcome (eq $outcome')))
  (type $error' (variant (case "invalid-arguments" string) (case "denied" $denial) (case "unavailable" (option u64)) (case "other" string)))
  (import "import-error" (type $error (eq $error')))
  (import "list" (func $list (result (result (list $spec) (error $error)))))
  (import "call" (func $call-tool (param "name" string) (param "arguments" $json) (result (result $outcome (error $error)))))
  (export $spec-out "tool-spec" (type $spec'))
  (export $outcome-out "outcome" (type $outcome'))
  (export $error-out "tool-error" (type $error'))
  (export "list-tools" (func $list) (func (result (result (list $spec-out) (error $error-out)))))
  (export "call" (func $call-tool) (func (param "name" string) (param "arguments" $json) (result (result $outcome-out (error $error-out))))))
  (func $list (result (result (list $spec) (error $error))) (canon lift (core func $core "list") (memory $memory) (realloc $realloc)))
  (func $call-tool (param "name" string) (param "arguments" $json) (result (result $outcome (error $error)))
    (canon lift (core func $core "call") (memory $memory) (realloc $realloc)))
  (instance $tools (instantiate $exports
    (with "types" (instance $types)) (with "import-spec" (type $spec)) (with "import-outcome" (type $outcome))
    (with "import-error" (type $error)) (with "list" (func $list)) (with "call" (func $call-tool))))
  (export "conclave:plugin/tools@0.1.0-draft" (instance $tools)))
