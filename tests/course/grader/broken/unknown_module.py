# verdict: error
# checks: all
# words: ModuleNotFoundError: No module named 'no_such_module'
import no_such_module
