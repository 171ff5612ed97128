// Loads a compose file with the library of docker compose and prints it as JSON: tools/deploy_tools.py builds this.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func load(files []string) error {
	options, err := cli.NewProjectOptions(files)
	if err != nil {
		return err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return err
	}
	text, err := project.MarshalJSON()
	if err != nil {
		return err
	}
	fmt.Println(string(text))
	return nil
}

func main() {
	if err := load(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
