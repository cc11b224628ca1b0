# Completion of assay for bash; made by `assay help --bash`.
_assay() {
    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} words
    case ${COMP_CWORD}:${COMP_WORDS[1]} in
    1:*) words="check run reference compare diagnose audit import show inspect explain faults forge report repro bench list help" ;;
    *:check) words="--help --reference --twin --against --list --sign --repro --budget --backend --path --dtype --products --ranks --experts --graph --chunk --cache --pages --key-split --pad --batch-invariant --plant --step --profile --names --report --json -q --quiet -v --verbose --threads" ;;
    *:run) words="--help -n --new --capture --points --tier --budget --draft -p --prompt --tokens --backend --path --dtype --products --ranks --experts --graph --chunk --cache --pages --key-split --pad --batch-invariant --plant --json -q --quiet -v --verbose --threads" ;;
    *:reference) words="--help -o --output -n --new --layers --points --path --conventions --no-floor --memory -p --prompt --tokens --json -q --quiet -v --verbose --threads" ;;
    *:compare) words="--help --twin --model --step --profile --names --report --json -q --quiet -v --verbose --threads" ;;
    *:diagnose) words="--help --model --layers --repro --step --profile --names --report --json -q --quiet -v --verbose --threads" ;;
    *:audit) words="--help --ranks --loaded --against --report --json -q --quiet -v --verbose --threads" ;;
    *:import) words="--help -o --output --points --tier --budget --step --profile --names --json -q --quiet -v --verbose --threads" ;;
    *:show) words="--help --rows --heads --columns --reference --model --all --step --profile --names --json -q --quiet -v --verbose --threads" ;;
    *:inspect) words="--help --step --profile --names --json -q --quiet -v --verbose --threads" ;;
    *:explain) words="--help --json -q --quiet -v --verbose --threads" ;;
    *:faults) words="--help -Q --quick -D --device --ranks -C --class --tier --report --json -q --quiet -v --verbose --threads" ;;
    *:forge) words="--help --like --layers --type -o --output --skeleton --seed --split --order --nextn --vocab --biases --kv-b --wrong --at --json -q --quiet -v --verbose --threads" ;;
    *:report) words="--help --html --format --report --json -q --quiet -v --verbose --threads" ;;
    *:repro) words="--help -o --output --report --json -q --quiet -v --verbose --threads" ;;
    *:bench) words="--help -n --length --only --repeats --weights --backend --path --dtype --products --ranks --experts --graph --chunk --cache --pages --key-split --pad --batch-invariant --plant --json -q --quiet -v --verbose --threads" ;;
    *:list) words="--help --json -q --quiet -v --verbose --threads" ;;
    *:help) words="--help --man --bash --json -q --quiet -v --verbose --threads" ;;
    esac
    case $previous in
    list) words="$(assay list 2>/dev/null | cut -d' ' -f1)" ;;
    explain) words="$(assay list faults 2>/dev/null | cut -d' ' -f1)" ;;
    help) words="$(assay list commands 2>/dev/null | cut -d' ' -f1)" ;;
    --plant) words="$(assay list plants 2>/dev/null | cut -d' ' -f1)" ;;
    --profile) words="$(assay list profiles 2>/dev/null | cut -d' ' -f1)" ;;
    --path) words="expanded latent" ;;
    --dtype) words="f32 bf16" ;;
    --backend) words="cpu cuda" ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}
complete -o default -F _assay assay
